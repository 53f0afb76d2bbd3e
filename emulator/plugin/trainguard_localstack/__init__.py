"""What LocalStack 4.9.2 lacks, or does otherwise than AWS, when it runs without Docker.

The modules named ``*_provider``, ``*_executor``, ``*_engine_thread``, ``*_states`` and those with a
correction each reach into LocalStack. The others hold the logic and import nothing of it.
"""
