-- A queue with a campaign that is half done, as a program with version 1 of the schema left it.
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA longhaul;
CREATE TABLE longhaul.campaign (
    id bigint NOT NULL,
    key bytea NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    state bigint NOT NULL,
    priority bigint NOT NULL,
    weight bigint NOT NULL,
    deadline bigint,
    calendar text NOT NULL,
    retry text NOT NULL,
    spec bytea NOT NULL,
    omitted bigint NOT NULL
);
CREATE TABLE longhaul.fault (
    shard bigint NOT NULL,
    path bytea NOT NULL,
    campaign bigint NOT NULL,
    bytes bigint NOT NULL,
    code text NOT NULL COLLATE pg_catalog."C",
    blame text NOT NULL,
    message text NOT NULL,
    given_up bigint NOT NULL,
    tries bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL
);
CREATE TABLE longhaul.leader (
    one bigint NOT NULL,
    term bigint NOT NULL,
    holder bytea NOT NULL,
    until bigint NOT NULL,
    CONSTRAINT leader_one_check CHECK ((one = 1))
)
WITH (fillfactor='50');
CREATE TABLE longhaul.link (
    id bigint NOT NULL,
    site_from bigint NOT NULL,
    site_to bigint NOT NULL,
    movers bigint NOT NULL,
    rate bigint,
    calendar text NOT NULL,
    state bigint NOT NULL,
    reason text,
    failures bigint NOT NULL,
    pause_until bigint NOT NULL,
    mismatches bigint NOT NULL,
    meter_since bigint NOT NULL,
    meter_bytes bigint NOT NULL,
    meter_rate bigint NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE longhaul.mark (
    store bytea NOT NULL,
    token bytea NOT NULL,
    at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');
CREATE SEQUENCE longhaul.number
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE longhaul.omitted (
    campaign bigint NOT NULL,
    source bigint NOT NULL,
    object bytea NOT NULL,
    code text NOT NULL,
    message text NOT NULL
);
CREATE TABLE longhaul.permit (
    kind bigint NOT NULL,
    place bigint NOT NULL,
    slot bigint NOT NULL,
    shard bigint NOT NULL,
    fence bigint NOT NULL,
    claim bytea NOT NULL,
    until bigint NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE longhaul.queue_version (
    one bigint NOT NULL,
    version bigint NOT NULL,
    CONSTRAINT queue_version_one_check CHECK ((one = 1))
);
CREATE TABLE longhaul.segment (
    campaign bigint NOT NULL,
    number bigint NOT NULL,
    digest bytea NOT NULL,
    files bigint NOT NULL,
    bytes bigint NOT NULL
);
CREATE TABLE longhaul.shard (
    id bigint NOT NULL,
    campaign bigint NOT NULL,
    link bigint NOT NULL,
    segment bigint NOT NULL,
    entry_first bigint NOT NULL,
    entry_end bigint NOT NULL,
    files bigint NOT NULL,
    bytes bigint NOT NULL,
    done_files bigint NOT NULL,
    done_bytes bigint NOT NULL,
    failed_files bigint NOT NULL,
    failed_bytes bigint NOT NULL,
    state bigint NOT NULL,
    mover bytea,
    lease_until bigint,
    hold text,
    rank bigint NOT NULL,
    not_before bigint NOT NULL,
    again bigint NOT NULL,
    lapses bigint NOT NULL,
    breaks bigint NOT NULL,
    fence bigint NOT NULL,
    claim bytea NOT NULL,
    moved bigint NOT NULL,
    judged bigint NOT NULL,
    unclaimed bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000');
CREATE TABLE longhaul.share (
    campaign bigint NOT NULL,
    link bigint NOT NULL,
    used bigint NOT NULL
);
CREATE TABLE longhaul.site (
    id bigint NOT NULL,
    name text NOT NULL,
    movers_in bigint NOT NULL,
    movers_out bigint NOT NULL
);
CREATE TABLE longhaul.turn (
    one bigint NOT NULL
);
INSERT INTO longhaul.campaign VALUES (1, '\xaf11467f711de370f7aae2f456056f08', 'half', 1, 5, 100, NULL, '', '', '\x7b2276657273696f6e223a312c22736f7572636573223a5b7b22746f70223a7b2248657265223a222f646174612f73697465312f736574227d2c226f6e6c79223a6e756c6c2c226f6e746f223a5b3131352c3130312c3131365d7d5d2c22746f223a7b2248657265223a222f646174612f73697465312f746f227d2c2273657474696e6773223a7b226c616e6573223a6e756c6c2c2270726f74656374223a6e756c6c2c227472616e73706f7274223a224175746f222c22636f6e67657374696f6e223a224175746f222c226368756e6b223a6e756c6c2c226d656d6f7279223a3236383433353435362c226465707468223a6e756c6c2c22696f223a224175746f222c22656e67696e65223a224175746f222c22766572696679223a2257697265222c2269665f657869737473223a22536b697053616d65222c227072657365727665223a7b226d6f6465223a747275652c2274696d6573223a747275652c226c696e6b73223a747275652c22737061727365223a747275652c22786174747273223a66616c73652c226f776e6572223a66616c73652c2261636c73223a66616c73652c22686172646c696e6b73223a66616c73652c2273756d73223a307d2c226163636f756e7473223a7b227573657273223a5b5d2c2267726f757073223a5b5d2c226e756d626572735f6f6e6c79223a66616c73657d2c2266696c746572223a5b5d2c2266696c65735f66726f6d223a6e756c6c2c2264696765737473223a66616c73652c226472795f72756e223a66616c73652c2272657472795f666f72223a7b2273656373223a33302c226e616e6f73223a307d2c227374616c6c5f6166746572223a7b2273656373223a32302c226e616e6f73223a307d2c227061746873223a5b5d2c2272617465223a36353533362c227368617265223a2246616972222c2273796e63223a7b226279746573223a313037333734313832342c22616765223a7b2273656373223a312c226e616e6f73223a307d7d2c2270696e223a224175746f227d2c22626f756e6473223a7b2266696c6573223a332c226279746573223a6e756c6c7d2c226b657973223a7b226964656e74697479223a6e756c6c2c226b6e6f776e5f686f737473223a6e756c6c2c22706565725f6b6579223a6e756c6c2c2274727573745f6f6e5f66697273745f757365223a66616c73657d7d', 0);
INSERT INTO longhaul.fault VALUES (4, '\x3031', 1, 40000, 'not-found', 'local', 'cannot examine ''/data/site1/set/01'': No such file or directory (os error 2)', 1, 1, 1795937359604443, 1795937359604443);
INSERT INTO longhaul.leader VALUES (1, 1, '\xd6c16acb049eb91d7c11f90cef075bf5', 1795937373335312);
INSERT INTO longhaul.link VALUES (3, 2, 2, 8, NULL, '', 0, NULL, 0, 0, 0, 1795937359604443, 200000, 0);
INSERT INTO longhaul.mark VALUES ('\xea42d79dc4ca3788fd4ed9096b3646c2', '\x207eaf57e90efb3766ab68524d364af6', '2026-11-29 07:29:17.894664+00');
INSERT INTO longhaul.mark VALUES ('\x89439947a768c99e7e8f4289a80fc1e6', '\x97476947ef3343536364bd5fd57e6970', '2026-11-29 07:29:17.996754+00');
INSERT INTO longhaul.mark VALUES ('\xd171690470b7b7f56cdd3dde26f82cf2', '\x860aa1d7ab89046b731e819721a26657', '2026-11-29 07:29:20.258483+00');
INSERT INTO longhaul.permit VALUES (0, 3, 0, 6, 1, '\xd3b200b84e352fb80c3492cc6a192c09', 1795937419610809);
INSERT INTO longhaul.permit VALUES (1, 2, 0, 6, 1, '\xd3b200b84e352fb80c3492cc6a192c09', 1795937419610809);
INSERT INTO longhaul.permit VALUES (2, 2, 0, 6, 1, '\xd3b200b84e352fb80c3492cc6a192c09', 1795937419610809);
INSERT INTO longhaul.permit VALUES (0, 3, 1, 7, 1, '\x327d514ab8a63de31a707f89e10ca730', 1795937420256639);
INSERT INTO longhaul.permit VALUES (1, 2, 1, 7, 1, '\x327d514ab8a63de31a707f89e10ca730', 1795937420256639);
INSERT INTO longhaul.permit VALUES (2, 2, 1, 7, 1, '\x327d514ab8a63de31a707f89e10ca730', 1795937420256639);
INSERT INTO longhaul.queue_version VALUES (1, 1);
INSERT INTO longhaul.segment VALUES (1, 0, '\x3ff8f3c9289f771f897a3ec39dc183b11f47158c3fe597684e92657a65b278d4', 15, 600000);
INSERT INTO longhaul.shard VALUES (8, 1, 3, 0, 12, 15, 3, 120000, 0, 0, 0, 0, 1, NULL, NULL, NULL, 13, 0, 0, 0, 0, 0, '\x00000000000000000000000000000000', 0, 0, 0);
INSERT INTO longhaul.shard VALUES (4, 1, 3, 0, 0, 3, 3, 120000, 2, 80000, 1, 40000, 4, NULL, NULL, NULL, 9, 0, 0, 0, 0, 1, '\xb515ac38307190969652ab2a46194e28', 80000, 0, 0);
INSERT INTO longhaul.shard VALUES (6, 1, 3, 0, 6, 9, 3, 120000, 0, 0, 0, 0, 2, '\xd6c16acb049eb91d7c11f90cef075bf5', 1795937419610809, NULL, 11, 0, 0, 0, 0, 1, '\xd3b200b84e352fb80c3492cc6a192c09', 0, 0, 0);
INSERT INTO longhaul.shard VALUES (5, 1, 3, 0, 3, 6, 3, 120000, 3, 120000, 0, 0, 3, NULL, NULL, NULL, 10, 0, 0, 0, 0, 1, '\x54110cf875eb875795c836b1838ce738', 120000, 0, 0);
INSERT INTO longhaul.shard VALUES (7, 1, 3, 0, 9, 12, 3, 120000, 0, 0, 0, 0, 2, '\xd6c16acb049eb91d7c11f90cef075bf5', 1795937420256639, NULL, 12, 0, 0, 0, 0, 1, '\x327d514ab8a63de31a707f89e10ca730', 0, 0, 0);
INSERT INTO longhaul.share VALUES (1, 3, 6005);
INSERT INTO longhaul.site VALUES (2, 'this host', 64, 64);
SELECT pg_catalog.setval('longhaul.number', 13, true);
ALTER TABLE ONLY longhaul.campaign
    ADD CONSTRAINT campaign_name_key UNIQUE (name);
ALTER TABLE ONLY longhaul.campaign
    ADD CONSTRAINT campaign_pkey PRIMARY KEY (id);
ALTER TABLE ONLY longhaul.leader
    ADD CONSTRAINT leader_pkey PRIMARY KEY (one);
ALTER TABLE ONLY longhaul.link
    ADD CONSTRAINT link_pkey PRIMARY KEY (id);
ALTER TABLE ONLY longhaul.mark
    ADD CONSTRAINT mark_pkey PRIMARY KEY (store);
ALTER TABLE ONLY longhaul.permit
    ADD CONSTRAINT permit_pkey PRIMARY KEY (kind, place, slot);
ALTER TABLE ONLY longhaul.queue_version
    ADD CONSTRAINT queue_version_pkey PRIMARY KEY (one);
ALTER TABLE ONLY longhaul.segment
    ADD CONSTRAINT segment_pkey PRIMARY KEY (campaign, number);
ALTER TABLE ONLY longhaul.shard
    ADD CONSTRAINT shard_pkey PRIMARY KEY (id);
ALTER TABLE ONLY longhaul.share
    ADD CONSTRAINT share_pkey PRIMARY KEY (campaign, link);
ALTER TABLE ONLY longhaul.site
    ADD CONSTRAINT site_pkey PRIMARY KEY (id);
ALTER TABLE ONLY longhaul.turn
    ADD CONSTRAINT turn_pkey PRIMARY KEY (one);
CREATE INDEX fault_campaign ON longhaul.fault USING btree (campaign, code, given_up, bytes);
CREATE UNIQUE INDEX fault_path ON longhaul.fault USING btree (shard, sha256(path));
CREATE UNIQUE INDEX omitted_object ON longhaul.omitted USING btree (campaign, source, sha256(object));
CREATE INDEX permit_shard ON longhaul.permit USING btree (shard);
CREATE INDEX shard_leased ON longhaul.shard USING btree (id) WHERE (state = 2);
CREATE INDEX shard_planned ON longhaul.shard USING btree (campaign, link, id) WHERE (state = 0);
CREATE INDEX shard_ready ON longhaul.shard USING btree (link, rank, id) WHERE (state = 1);
CREATE INDEX shard_state ON longhaul.shard USING btree (campaign, state, id);
