"""Model cards, pictures, tables and pages."""
