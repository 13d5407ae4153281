"""Code of attention: blocks of queries against blocks of keys, with nothing larger than both kept of the scores."""
