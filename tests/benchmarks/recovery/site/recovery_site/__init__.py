"""What a worker of any system loads: settings, the shared body of the job, and the adapter of its system.

It imports neither this project nor its tests: it runs in the virtual environment of a peer.
"""
