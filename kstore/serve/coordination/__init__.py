"""The coordinators of a server: they load, append, wake and answer by the rules of kstore.coordinator."""
