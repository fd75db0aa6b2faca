"""Who is whose neighbour: the variables that tell a rank its place (docs/environment.md)."""


def rank_variables(hosts):
    """hosts[rank] is anything that is equal for ranks of one host. Returns a list of "NAME=value"
    by rank."""
    distinct = list(dict.fromkeys(hosts))
    local_ranks = [hosts[:rank].count(host) for rank, host in enumerate(hosts)]
    return [
        [
            "HVD_RANK=%d" % rank,
            "HVD_SIZE=%d" % len(hosts),
            "HVD_LOCAL_RANK=%d" % local_ranks[rank],
            "HVD_LOCAL_SIZE=%d" % hosts.count(host),
            "HVD_CROSS_RANK=%d" % _cross_hosts(hosts, local_ranks[rank], distinct).index(host),
            "HVD_CROSS_SIZE=%d" % len(_cross_hosts(hosts, local_ranks[rank], distinct)),
            "RANK=%d" % rank,
            "WORLD_SIZE=%d" % len(hosts),
            "LOCAL_RANK=%d" % local_ranks[rank],
            "LOCAL_WORLD_SIZE=%d" % hosts.count(host),
            "GROUP_RANK=%d" % distinct.index(host),
        ]
        for rank, host in enumerate(hosts)
    ]


def _cross_hosts(hosts, local_rank, distinct):
    """The hosts that have a rank of this local rank."""
    return [host for host in distinct if hosts.count(host) > local_rank]
