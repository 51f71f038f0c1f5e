"""What a stack costs a month before any request. docs/deployment.md has the model, and what requests add."""

HOURS = 730
# On-demand prices of us-east-1 in dollars, without free tiers, as in docs/deployment.md.
VALKEY_NODE_HOUR = {
    "cache.t4g.micro": 0.0128,
    "cache.t4g.small": 0.0256,
    "cache.t4g.medium": 0.052,
    "cache.m7g.large": 0.1264,
    "cache.m7g.xlarge": 0.252,
    "cache.r7g.large": 0.1752,
    "cache.r7g.xlarge": 0.3496,
}
ENDPOINT_HOUR = 0.01
ALARM_METRIC = 0.10
METRIC = 0.30
SECRET = 0.40


def lines(template):
    """Descriptions and dollars. None stands for a price that is not known here."""
    found = []
    if template.has("Redis"):
        nodes = int(template["RedisShards"]) * (1 + int(template["RedisReplicas"]))
        price = VALKEY_NODE_HOUR.get(template["RedisNodeType"])
        found.append((f"Redis: {nodes} × {template['RedisNodeType']} with Valkey", price and nodes * price * HOURS))
    if template.has("SqsEndpoint"):
        found.append(("Endpoint of SQS in two zones", 2 * ENDPOINT_HOUR * HOURS))
    if template.has("EventsEndpoint"):
        found.append(("Endpoint of EventBridge in two zones", 2 * ENDPOINT_HOUR * HOURS))
    alarms = template.of_type("AWS::CloudWatch::Alarm").values()
    metrics = sum(max(1, sum("MetricStat" in one for one in alarm["Properties"].get("Metrics", []))) for alarm in alarms)
    if metrics:
        found.append((f"Alarms on {metrics} metrics", metrics * ALARM_METRIC))
    filters = len(template.of_type("AWS::Logs::MetricFilter"))
    found.append((f"{filters} metrics from logs", filters * METRIC))
    if template.has("RedisPassword"):
        found.append(("The password of Redis", SECRET))
    return found


def shown(template):
    """The lines to print."""
    found = lines(template)
    width = max(len(words) for words, _ in found)
    rows = [f"  {words:<{width}}  {'not known' if dollars is None else f'{dollars:9.2f}':>9}" for words, dollars in found]
    total = sum(dollars for _, dollars in found if dollars is not None)
    rest = " and the price that is not known" if any(dollars is None for _, dollars in found) else ""
    return [
        "Dollars a month before any request (us-east-1, on demand, calculated):",
        *rows,
        f"  {'Total' + rest:<{width}}  {total:9.2f}",
        "docs/deployment.md, \"Cost\", has what requests add.",
    ]
