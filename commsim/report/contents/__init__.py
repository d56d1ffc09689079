"""What a report of each command shows, one file each: a title of its JSON, and the parts of it.

`shared.py` has what several show.
"""
