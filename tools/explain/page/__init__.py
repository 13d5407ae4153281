"""The page of `redpebble explain --report x.html`: one HTML file that needs nothing but itself."""
