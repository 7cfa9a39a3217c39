//! Tokens of agents that the aggregator rejects.

use crate::cluster::Api as Cluster;
use crate::cluster::auth::place::AuthNamespace;
use crate::machine::Machine;
use crate::problem::Problem;

const SINGLE: &str = "machine: single\ngpus:\n- {board: H100_80GB_SXM}\n";

#[tokio::test]
async fn token_that_does_not_prove_its_node_is_rejected_with_reason() {
    let place = AuthNamespace::new(Cluster::shared());
    let (own, other) = (place.cluster.node("trouble"), place.cluster.node("trouble"));
    let site = place.site(&[]);
    let machine = Machine::new(SINGLE);

    let problem = Problem::documented("token_missing");
    problem.await_log(&mut site.agent(&machine, own.name(), None));

    let problem = Problem::documented("token_refused");
    let pod = place.pod("octavo-agent", own.name());
    let token = site.file("another", &place.token(&pod, "another"));
    problem.await_log(&mut site.agent(&machine, own.name(), Some(&token)));

    let problem = Problem::documented("token_of_another_node");
    let token = site.file("own", &place.agents_token(own.name()));
    problem.await_log(&mut site.agent(&machine, other.name(), Some(&token)));
}
