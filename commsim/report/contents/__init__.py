"""What a report of each command shows, one file each: a title of its JSON, and PARTS of it."""
