"""The command line: one file per command, found by its name.

A command is a module here whose name does not start with an underscore; it holds one function of
the module's own name, which Typer turns into arguments and options. Nothing else needs an edit.
"""
