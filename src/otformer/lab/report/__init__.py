"""The report page. It reads the files that experiments leave."""
