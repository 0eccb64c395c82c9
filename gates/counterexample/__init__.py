"""The smallest input on which a gate still fails: found, kept in a file, judged again, turned into a test."""
