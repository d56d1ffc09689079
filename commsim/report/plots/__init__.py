"""Pictures, one file each: functions from commsim's results to Altair charts.

Altair and vl-convert are optional (`pip install 'commsim[plot]'`): nothing outside this folder
imports them, and nothing here computes a number that the library does not give.
"""
