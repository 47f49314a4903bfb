"""The methods that clients call, whichever door the call came through."""
