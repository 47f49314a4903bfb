"""Who is told how calls end."""
