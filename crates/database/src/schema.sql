-- The program that may write: each transaction checks that no other program has opened the ledger since, and changes the second part of
-- the token.
CREATE TABLE IF NOT EXISTS ledger_writer (
  id BIGINT NOT NULL PRIMARY KEY,
  token TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS ledger_device (
  id BIGINT NOT NULL PRIMARY KEY,
  node TEXT NOT NULL,
  uid TEXT NOT NULL,
  type TEXT,
  instance_type TEXT,
  region TEXT,
  purchase_option TEXT
);

CREATE TABLE IF NOT EXISTS ledger_holder (
  id BIGINT NOT NULL PRIMARY KEY,
  namespace TEXT NOT NULL,
  pod TEXT NOT NULL,
  uid TEXT NOT NULL,
  container TEXT NOT NULL,
  claim TEXT,
  owner_kind TEXT,
  owner_name TEXT,
  team TEXT
);

-- The parts of the devices: who held which share from start_s until before end_s, in seconds since 1970.
-- state: 0 allocated, 1 unallocated, 2 unknown. ppm: share of the device, in parts per million.
CREATE TABLE IF NOT EXISTS ledger_interval (
  day BIGINT NOT NULL,
  device BIGINT NOT NULL,
  start_s BIGINT NOT NULL,
  slot BIGINT NOT NULL,
  end_s BIGINT NOT NULL,
  holder BIGINT,
  state BIGINT NOT NULL,
  activity TEXT NOT NULL,
  method TEXT NOT NULL,
  partition_uid TEXT,
  profile TEXT,
  ppm BIGINT NOT NULL,
  inferred BIGINT NOT NULL,
  percent_s BIGINT NOT NULL,
  measured_s BIGINT NOT NULL,
  PRIMARY KEY (day, device, start_s, slot)
);

-- Everything that distinguishes the sums of a day. Most days have the same groups.
CREATE TABLE IF NOT EXISTS ledger_group (
  id BIGINT NOT NULL PRIMARY KEY,
  type TEXT,
  instance_type TEXT,
  region TEXT,
  purchase_option TEXT,
  namespace TEXT,
  team TEXT,
  state BIGINT NOT NULL,
  activity TEXT NOT NULL,
  method TEXT NOT NULL,
  profile TEXT,
  inferred BIGINT NOT NULL
);

-- Sums of the intervals of a day that is over. A day has rows here if and only if it is in ledger_closed_day.
-- The key begins with the group, so that a database sums up each group without sorting.
CREATE TABLE IF NOT EXISTS ledger_day (
  group_id BIGINT NOT NULL,
  day BIGINT NOT NULL,
  ppm_s BIGINT NOT NULL,
  percent_s BIGINT NOT NULL,
  measured_s BIGINT NOT NULL,
  PRIMARY KEY (group_id, day)
);

CREATE INDEX IF NOT EXISTS ledger_day_day ON ledger_day (day);

CREATE TABLE IF NOT EXISTS ledger_closed_day (
  day BIGINT NOT NULL PRIMARY KEY
);

-- Audit: a chain of entries (one line of JSON each) with their hashes. The other columns select entries.
CREATE TABLE IF NOT EXISTS audit_entry (
  seq BIGINT NOT NULL PRIMARY KEY,
  time_s BIGINT NOT NULL,
  kind TEXT NOT NULL,
  namespace TEXT,
  source TEXT NOT NULL UNIQUE,
  entry TEXT NOT NULL,
  hash TEXT NOT NULL
);

CREATE INDEX IF NOT EXISTS audit_entry_time ON audit_entry (time_s, seq);
