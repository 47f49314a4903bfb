"""Guards on content: what is taken out of texts on their way out, and what is noticed on their
way in.
"""
