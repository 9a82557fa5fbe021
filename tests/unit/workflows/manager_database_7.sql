-- SPDX-License-Identifier: Apache-2.0
-- The manager's database of version 7, as that version wrote it.
BEGIN TRANSACTION;
CREATE TABLE attachments (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	reservation VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	holder VARCHAR NOT NULL, 
	owner_uid BIGINT NOT NULL, 
	pid INTEGER, 
	process VARCHAR, 
	ttl_seconds FLOAT, 
	expires_ns BIGINT, 
	created_ns BIGINT NOT NULL, 
	UNIQUE (reservation, kind, owner_uid, holder), 
	FOREIGN KEY(reservation) REFERENCES reservations (name) ON DELETE CASCADE
);
INSERT INTO "attachments" VALUES(1,'job17','job','job 17',1001,NULL,NULL,NULL,NULL,1760000000000000000);
CREATE TABLE jobs (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	token VARCHAR NOT NULL, 
	run INTEGER NOT NULL, 
	state VARCHAR NOT NULL, 
	owner_uid INTEGER NOT NULL, 
	owner_gid INTEGER NOT NULL, 
	capacity_bytes BIGINT NOT NULL, 
	reservation VARCHAR NOT NULL, 
	directives JSON NOT NULL, 
	stages JSON NOT NULL, 
	reason VARCHAR NOT NULL, 
	quiet BOOLEAN NOT NULL, 
	node_count INTEGER NOT NULL, 
	created_ns BIGINT NOT NULL, 
	changed_ns BIGINT NOT NULL, 
	UNIQUE (token, run)
);
INSERT INTO "jobs" VALUES(1,'17',1,'running',1001,1001,67108864,'job17','{"private": false}','{"in 1": 1}','',0,2,1760000000000000000,1760000000000000000);
CREATE TABLE queue (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name VARCHAR NOT NULL, 
	pool VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	owner_uid INTEGER NOT NULL, 
	created_ns BIGINT NOT NULL, 
	seen_ns BIGINT NOT NULL, 
	UNIQUE (name)
);
INSERT INTO "queue" VALUES(1,'later','','',1073741824,1000,1760000000000000000,1760000000000000000);
CREATE TABLE receipts (
	stage INTEGER NOT NULL, 
	path VARCHAR NOT NULL, 
	crc32c VARCHAR NOT NULL, 
	written_ns BIGINT NOT NULL, 
	PRIMARY KEY (stage), 
	FOREIGN KEY(stage) REFERENCES stages (id)
);
INSERT INTO "receipts" VALUES(1,'/pfs/r','0a0b0c0d',1760000000000000000);
CREATE TABLE reservations (
	name VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	id VARCHAR NOT NULL, 
	capacity_bytes BIGINT NOT NULL, 
	persistent BOOLEAN NOT NULL, 
	access_mode VARCHAR NOT NULL, 
	type VARCHAR NOT NULL, 
	owner_uid INTEGER NOT NULL, 
	owner_gid INTEGER NOT NULL, 
	force BOOLEAN NOT NULL, 
	created_ns BIGINT NOT NULL, 
	files_bytes BIGINT NOT NULL, 
	pool VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "reservations" VALUES('run1','present','id-1',67108864,0,'striped','scratch',1000,1000,0,5,1048576,'fast','weather');
INSERT INTO "reservations" VALUES('job17','present','id-2',33554432,1,'striped','scratch',1001,1001,0,6,67108864,'','');
CREATE TABLE schema (
	version INTEGER NOT NULL
);
INSERT INTO "schema" VALUES(7);
CREATE TABLE stages (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	state VARCHAR NOT NULL, 
	job JSON NOT NULL, 
	owner_uid INTEGER NOT NULL, 
	owner_gid INTEGER NOT NULL, 
	umask INTEGER NOT NULL, 
	cancel BOOLEAN NOT NULL, 
	attempts INTEGER NOT NULL, 
	created_ns BIGINT NOT NULL, 
	started_ns BIGINT, 
	finished_ns BIGINT, 
	progress JSON NOT NULL, 
	notes JSON NOT NULL, 
	result JSON, 
	failure JSON
);
INSERT INTO "stages" VALUES(1,'succeeded','{"kind": "files", "reservation": "job17", "path": "a", "outside": "/pfs/a", "inward": true}',1001,1001,18,0,0,1760000000000000000,NULL,9,'{}','[]','{"receipt": "/pfs/r"}',NULL);
INSERT INTO "stages" VALUES(2,'queued','{"kind": "steps", "stream": "run1/flow", "destination": "/pfs/s"}',1000,1000,18,0,0,1760000000000000000,NULL,NULL,'{}','[]',NULL,NULL);
CREATE TABLE unattached (
	reservation VARCHAR NOT NULL, 
	since_ns BIGINT NOT NULL, 
	last_holder VARCHAR NOT NULL, 
	reason VARCHAR NOT NULL, 
	PRIMARY KEY (reservation), 
	FOREIGN KEY(reservation) REFERENCES reservations (name) ON DELETE CASCADE
);
INSERT INTO "unattached" VALUES('run1',1760000000000000000,'mine (detached)','');
CREATE INDEX ix_jobs_token ON jobs (token);
CREATE INDEX ix_attachments_reservation ON attachments (reservation);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('stages',2);
INSERT INTO "sqlite_sequence" VALUES('jobs',1);
INSERT INTO "sqlite_sequence" VALUES('attachments',2);
INSERT INTO "sqlite_sequence" VALUES('queue',1);
COMMIT;
