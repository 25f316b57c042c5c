"""
This room is the test project's payments provider: a server of its own over HTTP, and the client that talks to it.

`server` is the provider (standard library only, no Django), `process` starts and steers it from demos and tests,
`client` is what a job's effect calls. The provider keeps a ledger of what it applied, so that "charged once" is
read from the other side of the wire and not from the database of the jobs.
"""
