"""What each rank keeps in memory while it trains, and until when."""
