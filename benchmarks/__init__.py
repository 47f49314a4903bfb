"""What a request, a listener and a reload cost, beside a raw ASGI floor and the usual alternatives.

`python -m benchmarks` runs everything on loopback; `docs/performance.md` explains the method and
holds the last recorded run.
"""
