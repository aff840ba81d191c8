-- Instances that the others removed. One that comes back is told so, instead of joining again under its old id.
CREATE TABLE wh_evicted_instances (
  instance_id uuid PRIMARY KEY,
  evicted_at timestamptz NOT NULL,
  evicted_by uuid NOT NULL,
  reason text NOT NULL
);
