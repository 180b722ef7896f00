"""What a run left, as one page that needs no network: written at the end of a run, or served while it goes on."""
