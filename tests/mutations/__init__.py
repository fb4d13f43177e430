"""Small faults put into the script and the decisions one at a time; named tests must catch each. Not part of CI."""
