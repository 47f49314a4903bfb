"""What the server says about itself: counts, lines, and what reads them."""
