"""The revisions that begin with ``initialize``, as translations of the modern protocol.

Nothing here does I/O or remembers anything: each function takes what the server says to everybody
and gives what a client of one revision reads, or the other way round. Nothing below imports this
package, so the day these revisions are no longer served it can be deleted.
"""
