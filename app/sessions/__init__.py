"""The ``initialize`` era while it lives: sessions, questions, streams to come back to."""
