"""Groups one of whose members runs into a deadline: what each policy of the barrier makes of them."""
