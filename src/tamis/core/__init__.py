"""The life of a Ray cluster: started, reached, stopped."""
