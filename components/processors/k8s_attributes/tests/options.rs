//! The message for each invalid or contradictory option.

use profcol_component::testkit::load;

use crate::k8s_attributes::K8sAttributesConfig;

#[test]
fn validates_the_options() {
    let check = |options: &str, expected: &str| {
        let error = load::<K8sAttributesConfig>(options).unwrap_err();
        assert_eq!(error, expected, "{options}");
    };
    check(
        "auth_type: tls",
        "auth_type: put the client certificate into a kubeconfig file and use kubeConfig",
    );
    check("context: a", "context: requires auth_type: kubeConfig");
    check(
        "extract: {labels: [{key: a, key_regex: b}]}",
        "extract::labels::0: has both key \"a\" and key_regex \"b\"; only one of them is possible",
    );
    check(
        "extract: {annotations: [{}]}",
        "extract::annotations::0: needs a key or a key_regex",
    );
    check(
        "extract: {labels: [{tag_name: x, key_regex: 'a.*'}]}",
        "extract::labels::0: with tag_name \"x\" all matching keys would become the same attribute: put a group into key_regex and refer to it, or remove tag_name",
    );
    check(
        "filter: {node: a, node_from_env_var: B}",
        "filter: has both node and node_from_env_var; one of them is enough",
    );
    check("filter: {labels: [{}]}", "filter::labels::0: has no key");
    check(
        "pod_association: [{sources: [{from: connection}, {name: a}, {name: b}, {name: c}, {name: d}]}]",
        "pod_association::0: too many association sources. limit is 4",
    );
    check(
        "{source: kubelet, filter: {node: a}, extract: {metadata: [k8s.pod.name, k8s.node.uid], labels: [{key: a, from: node}]}}",
        "kubelet::endpoint: needs a URL such as https://${env:K8S_NODE_NAME}:10250\n\
         filter: a kubelet always lists all pods of its node; remove it\n\
         extract::metadata::1: is not part of the pod, and a kubelet has only pods: use source: api\n\
         extract::labels::0::from: a kubelet has only pods: use source: api",
    );
    check(
        "kubelet: {endpoint: 'https://n1:10250'}",
        "kubelet::endpoint: requires source: kubelet",
    );
    check("pod_association: [{}]", "pod_association::0: needs sources");
    check(
        "pod_association: [{sources: [{name: k8s.deployment.name}]}]",
        "pod_association::0: k8s.deployment.name is not part of the pod, so no pod can be found by it",
    );
    check(
        "pod_association: [{sources: [{from: resource_attribute}]}]",
        "pod_association::0: a source from resource_attribute needs a name",
    );
    check(
        "{wait_for: 2m, passthrough: true}",
        "wait_for: must be between 0s and 1m\nwait_for: has no effect with passthrough; remove it",
    );
    check(
        "{max_pods: 0, keep_deleted_for: -1s}",
        "max_pods: must be at least 1\nkeep_deleted_for: must not be negative",
    );
}
