//! Traces from usage of the ledger.

use crate::simulation::{OmittedRows, Trace, TraceError, parse_trace};

const HEADER: &str = "state,namespace,pod,pod_uid,partition_uuid,profile,start_time,end_time";

/// Requests of rows without a date, as arrival, duration and profile.
fn requests(rows: &str) -> Vec<(u64, u64, String)> {
    let jobs = trace(rows).unwrap().jobs.into_iter();
    let jobs =
        jobs.map(|job| (job.arrival.as_secs(), job.duration.as_secs(), job.profile.to_string()));
    jobs.collect()
}

fn trace(rows: &str) -> Result<Trace, TraceError> {
    parse_trace(&format!("{HEADER}\n{rows}"))
}

#[test]
fn consecutive_intervals_of_a_pod_are_one_request() {
    let rows = "\
        idle,ml,train,u1,MIG-1,3g.40gb,2026-11-27 08:00:00+00,2026-11-27 08:10:00+00\n\
        used,ml,train,u1,MIG-1,3g.40gb,2026-11-27 08:10:00+00,2026-11-28 00:00:00+00\n\
        used,ml,train,u1,MIG-1,3g.40gb,2026-11-28 00:00:00+00,2026-11-28 00:05:00+00\n\
        unallocated,,,,MIG-1,3g.40gb,2026-11-28 00:05:00+00,2026-11-28 00:06:00+00\n\
        used,ml,next,u2,MIG-1,3g.40gb,2026-11-28 00:06:00+00,2026-11-28 00:07:00+00\n";
    let day = 16 * 3_600;
    assert_eq!(
        requests(rows),
        [(0, day + 300, "3g.40gb".to_owned()), (day + 360, 60, "3g.40gb".to_owned())]
    );
}

#[test]
fn pod_retains_its_instance_in_a_gap_only_if_its_uid_is_known() {
    let rows = |uid: &str| {
        format!(
            "used,ml,train-0,{uid},MIG-1,1g.10gb,2026-11-27T08:00:00Z,2026-11-27T08:10:00Z\n\
             used,ml,train-0,{uid},MIG-1,1g.10gb,2026-11-27T08:20:00Z,2026-11-27T08:30:00Z\n"
        )
    };
    assert_eq!(requests(&rows("u1")), [(0, 1_800, "1g.10gb".to_owned())]);
    assert_eq!(requests(&rows("")).len(), 2);
}

#[test]
fn usage_without_a_pod_is_one_request_for_each_interval() {
    let rows = "\
        used,,,,MIG-1,1g.10gb,2026-11-27 08:00:00+00,2026-11-27 08:10:00+00\n\
        used,,,,MIG-1,1g.10gb,2026-11-27 08:10:00+00,2026-11-27 08:20:00+00\n";
    let expected = [(0, 600, "1g.10gb".to_owned()), (600, 600, "1g.10gb".to_owned())];
    assert_eq!(requests(rows), expected);
}

#[test]
fn partition_with_another_profile_is_another_request() {
    let rows = "\
        used,ml,a,u1,MIG-1,1g.10gb,2026-11-27 08:00:00+00,2026-11-27 08:10:00+00\n\
        used,ml,a,u1,MIG-1,2g.20gb,2026-11-27 08:10:00+00,2026-11-27 08:20:00+00\n";
    let expected = [(0, 600, "1g.10gb".to_owned()), (600, 600, "2g.20gb".to_owned())];
    assert_eq!(requests(rows), expected);
}

#[test]
fn another_pod_in_a_gap_ends_the_request() {
    let rows = "\
        used,ml,a,u1,MIG-1,1g.10gb,2026-11-27 08:00:00+00,2026-11-27 08:10:00+00\n\
        used,ml,b,u2,MIG-1,1g.10gb,2026-11-27 08:12:00+00,2026-11-27 08:14:00+00\n\
        used,ml,a,u1,MIG-1,1g.10gb,2026-11-27 08:20:00+00,2026-11-27 08:30:00+00\n";
    let expected = [(0, 600), (720, 120), (1_200, 600)];
    assert_eq!(requests(rows), expected.map(|(at, time)| (at, time, "1g.10gb".to_owned())));
}

#[test]
fn pods_that_share_an_instance_are_one_request() {
    let rows = "\
        used,ml,a,u1,MIG-1,2g.20gb,2026-11-27 08:00:00+00,2026-11-27 08:10:00+00\n\
        used,ml,b,u2,MIG-1,2g.20gb,2026-11-27 08:05:00+00,2026-11-27 08:20:00+00\n\
        used,ml,c,u3,MIG-2,2g.20gb,2026-11-27 08:05:00+00,2026-11-27 08:20:00+00\n";
    assert_eq!(
        requests(rows),
        [(0, 1_200, "2g.20gb".to_owned()), (300, 900, "2g.20gb".to_owned())]
    );
}

#[test]
fn usage_of_other_parts_is_omitted_and_counted() {
    let rows = "\
        used,ml,a,u1,,,2026-11-27 08:00:00+00,2026-11-27 08:10:00+00\n\
        idle,ml,b,u2,,,2026-11-27 08:00:00+00,2026-11-27 08:10:00+00\n\
        unknown,,,,,,2026-11-27 08:10:00+00,2026-11-27 08:20:00+00\n\
        used,ml,c,u3,MIG-1,1c.3g.40gb,2026-11-27 08:00:00+00,2026-11-27 08:10:00+00\n\
        used,ml,d,u4,MIG-2,1g.10gb,2026-11-27 08:00:00+00,2026-11-27 08:10:00+00\n";
    let trace = trace(rows).unwrap();
    assert_eq!(trace.jobs.len(), 1);
    assert_eq!(trace.omitted, OmittedRows { without_partition: 2, compute_instances: 1 });
}

#[test]
fn other_columns_and_their_order_do_not_matter() {
    let text = "end_time,start_time,node,profile,partition_uuid,pod_uid,pod,namespace,state,share\n\
        2026-11-27 09:00:00+01,2026-11-27 08:00:00.5+01,n1,1g.10gb,MIG-1,u1,a,ml,used,0.125\n";
    let jobs = parse_trace(text).unwrap().jobs;
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0].duration.as_millis(), 3_599_500);
}

#[test]
fn missing_column_of_the_export_is_named() {
    for (header, expected) in [
        (HEADER.replace("pod_uid,", ""), "pod_uid"),
        (HEADER.replace(",start_time", ""), "start_time"),
        (HEADER.replace("partition_uuid,", ""), "partition_uuid"),
    ] {
        let error = parse_trace(&format!("{header}\n")).unwrap_err().to_string();
        assert_eq!(error, format!("the column {expected} of the ledger's export is missing"));
    }
    // A file with requests can have any other column.
    let text = "arrival,duration,profile,start_time\n0,60,1g.10gb,08:00\n";
    assert_eq!(parse_trace(text).unwrap().jobs.len(), 1);
}

#[test]
fn limit_of_rows_is_readable() {
    let error = TraceError::TooLong.to_string();
    assert_eq!(error, "it has more than 1,000,000 rows; select fewer days");
}

#[test]
fn invalid_usage_names_the_line() {
    let time = "2026-11-27 08:00:00+00";
    for (row, expected) in [
        (format!("used,ml,a,u,MIG-1,1g.10gb,{time},soon"), "line 2: end_time must be a time"),
        (
            format!("used,ml,a,u,MIG-1,1g.10gb,{time},2026-11-26 08:00:00+00"),
            "line 2: end_time is before start_time",
        ),
        (format!("busy,ml,a,u,MIG-1,1g.10gb,{time},{time}"), "line 2: state: \"busy\" is not"),
        (format!("used,ml,a,u,MIG-1,,{time},{time}"), "line 2: profile: \"\" is not a profile"),
        (format!("used,ml,a,u,,,{time},{time}"), "it has no allocations of MIG instances"),
        (format!("used,ml,a,u,MIG-1,1g.10gb,{time}"), "it is not a CSV file with the columns"),
    ] {
        let error = trace(&row).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
