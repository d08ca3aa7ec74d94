"""`ccr extract`: features of every media item, from a frozen encoder or from files."""
