"""Tools in processes of their own: ``@tool(isolation="process")``.

The server (``pool``, ``crew``, ``handle``, ``nursery``) asks one template process (``template``)
for worker processes (``worker``). The template loads the application and no tool, has one thread,
and does nothing but fork, kill and reap; each worker loads the tools after it was forked.

What the server sends is pickled. What comes back from a worker is never unpickled: it is JSON, or
an encoded result.
"""
