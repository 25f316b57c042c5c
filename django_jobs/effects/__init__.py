"""What a job does to the world: declared operations, the record of each request, and the questions after a crash.

This room is entered from a handler's context with the name of an effect; it asks ``store`` what may be done, calls the
operation outside of any transaction, and hands back the receipt.
"""
