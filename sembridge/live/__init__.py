"""The live harness: plans replayed across two communicator domains that share no communicator."""
