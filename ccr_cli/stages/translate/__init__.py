"""`ccr translate`: machine translation of captions, shared among workers and cached sentence by sentence."""
