"""The agent package: a ZIP of an agent's folder, read strictly and written stably.

A source, which is an archive or a folder, gives items; ``contents`` checks them and gives parts;
and a part goes into an archive or a folder.
"""
