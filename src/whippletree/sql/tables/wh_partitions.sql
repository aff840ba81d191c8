-- Who owns which partition. A row for each partition, for ever; no heartbeat of its own.
CREATE TABLE wh_partitions (
  partition_number integer PRIMARY KEY,
  instance_id uuid
) WITH (fillfactor = 50);
INSERT INTO wh_partitions (partition_number)
SELECT generate_series(0, partition_count - 1) FROM wh_settings;
