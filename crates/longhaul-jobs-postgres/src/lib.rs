//! The queue of bulk replication in PostgreSQL: one database for any number of hosts.
