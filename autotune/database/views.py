"""The views: the common questions, answered in readable columns, and what the dispatcher reads.

Views hold no data, so every migration drops and remakes all of them from here.
"""

# The outcome a trial has now (a later ending outranks the first outcome), and its time: the median of the medians of its rounds of
# the most careful kind that it reached, as `StoredTrial.time_us` computes it. Its last round of that kind carries it, and the kinds
# sort by care: final, race, screen.
TRIAL_RESULTS = """
CREATE VIEW trial_results AS
SELECT t.id AS trial, t.run, t.number, d.name AS device, p.operation, p.dtype, p.rows, p.cols, p.input_stride, p.output_stride,
       p.input_alignment, p.output_alignment, p.in_place, c.version, c.parameters, coalesce(e.outcome, t.outcome) AS outcome,
       r.time_us, r.kind AS evidence, p.bytes_moved / r.time_us / 1e3 AS gb_per_s, t.max_error,
       i.registers, i.spill_bytes, i.static_shared_bytes,
       CASE WHEN e.message <> '' THEN e.message ELSE t.message END AS message,
       q.name AS protocol, q.rule AS protocol_rule, s.sha AS template_sha, t.replayed, t.created
FROM trials t
JOIN runs u ON u.id = t.run
JOIN devices d ON d.id = u.device
JOIN protocols q ON q.id = u.protocol
JOIN problems p ON p.id = t.problem
JOIN configurations c ON c.id = t.configuration
JOIN templates s ON s.id = t.template
LEFT JOIN instances i ON i.id = t.instance
LEFT JOIN endings e ON e.trial = t.id
LEFT JOIN rounds r ON r.id = (SELECT id FROM rounds WHERE trial = t.id ORDER BY kind, number DESC LIMIT 1)
"""

BEST_KERNELS = """
CREATE VIEW best_kernels AS
SELECT d.name AS device, p.operation, p.dtype, p.rows, p.cols, c.version, c.parameters, b.time_us, b.ci_low_us, b.ci_high_us, b.spread,
       p.bytes_moved / b.time_us / 1e3 AS gb_per_s, b.copy_us, b.copy_us / b.time_us AS fraction_of_copy,
       w.version AS runner_up_version, w.parameters AS runner_up_parameters, b.runner_up_us, b.gap, b.beyond_noise,
       b.tried AS trials, b.state, b.origin, t.replayed, q.name AS protocol, q.rule AS protocol_rule,
       p.input_stride, p.output_stride, p.input_alignment, p.output_alignment, p.in_place,
       s.sha AS template_sha, b.space_sha, e.driver, e.cuda, e.compiler, b.trial, b.updated
FROM best b
JOIN devices d ON d.id = b.device
JOIN problems p ON p.id = b.problem
JOIN protocols q ON q.id = b.protocol
JOIN configurations c ON c.id = b.configuration
JOIN templates s ON s.id = b.template
JOIN trials t ON t.id = b.trial
JOIN runs u ON u.id = t.run
JOIN environments e ON e.id = u.environment
LEFT JOIN configurations w ON w.id = b.runner_up
"""

# One trial stands for each version: the settled best where it is of that version, else the fastest of those that were measured rather than
# replayed and of the most careful kind of round, which is the first in the alphabet. A bare column comes from the row that has the minimum,
# wherever that is asked for.
# `apart` is what else tells trials of a version from each other.
# SQLite filters an aggregate only after computing all of it, which at a million trials takes half a minute; so the condition on
# problems `p`, devices `d` and configurations `c` goes inside.
BEST_PER_VERSION_WHERE = """
SELECT d.name AS device, p.operation, p.dtype, p.rows, p.cols, p.input_stride, p.output_stride, p.input_alignment, p.output_alignment,
       p.in_place, q.name AS protocol, q.rule AS protocol_rule, c.version, c.parameters, r.time_us,
       p.bytes_moved / r.time_us / 1e3 AS gb_per_s, count(*) AS trials, s.sha AS template_sha, t.replayed, t.id AS trial
FROM problems p
JOIN trials t ON t.problem = p.id
JOIN configurations c ON c.id = t.configuration
JOIN runs u ON u.id = t.run
JOIN devices d ON d.id = u.device
JOIN protocols q ON q.id = u.protocol
JOIN templates s ON s.id = t.template
JOIN rounds r ON r.id = (SELECT id FROM rounds WHERE trial = t.id ORDER BY kind, number DESC LIMIT 1)
LEFT JOIN endings e ON e.trial = t.id
LEFT JOIN best b ON b.problem = p.id AND b.device = u.device AND b.protocol = u.protocol
WHERE {condition} AND coalesce(e.outcome, t.outcome) IN ('ok', 'pruned')
GROUP BY p.id, u.device, u.protocol, c.version{apart}
HAVING min(printf('%d %s %030.12f', CASE WHEN t.id = b.trial THEN 0 ELSE 1 + t.replayed END, r.kind, r.time_us)) IS NOT NULL
"""
BEST_PER_VERSION = f"CREATE VIEW best_per_version AS {BEST_PER_VERSION_WHERE.format(condition='true', apart='')}"

FAILURES = """
CREATE VIEW failures AS
SELECT trial, device, operation, dtype, rows, cols, version, parameters, outcome, message, template_sha, replayed, created
FROM trial_results
WHERE trial IN (SELECT id FROM trials WHERE outcome NOT IN ('ok', 'pruned')
                UNION SELECT trial FROM endings WHERE outcome <> 'pruned')
"""

COVERAGE = """
CREATE VIEW coverage AS
SELECT d.name AS device, p.operation, p.dtype, q.name AS protocol, q.rule AS protocol_rule, count(*) AS problems,
       min(p.rows) AS least_rows, max(p.rows) AS most_rows, min(p.cols) AS least_cols, max(p.cols) AS most_cols,
       sum(b.state = 'confirmed') AS confirmed, sum(b.tried) AS trials
FROM best b JOIN devices d ON d.id = b.device JOIN problems p ON p.id = b.problem JOIN protocols q ON q.id = b.protocol
GROUP BY d.id, p.operation, p.dtype, q.id
"""

DISPATCHABLE = """
CREATE VIEW dispatchable AS
SELECT d.name AS device, i.arch, p.operation, p.dtype, p.rows, p.cols, p.input_stride, p.output_stride,
       p.input_alignment, p.output_alignment, p.in_place, q.name AS protocol, q.rule AS protocol_rule, c.version, c.parameters,
       s.sha AS template_sha, i.symbol, i.binary_sha, b.time_us, b.state, b.origin, b.device AS device_id
FROM best b
JOIN trials t ON t.id = b.trial
JOIN instances i ON i.id = t.instance AND i.binary_sha IS NOT NULL
JOIN devices d ON d.id = b.device
JOIN problems p ON p.id = b.problem
JOIN protocols q ON q.id = b.protocol
JOIN configurations c ON c.id = b.configuration
JOIN templates s ON s.id = b.template
"""

STORED_INSTANCES = """
CREATE VIEW stored_instances AS
SELECT c.operation, c.version, c.parameters, i.dtype, i.arch, s.sha AS template_sha, i.symbol, i.binary_sha, n.kind
FROM instances i
JOIN binaries n ON n.sha = i.binary_sha
JOIN configurations c ON c.id = i.configuration
JOIN templates s ON s.id = i.template
"""

PINNED = """
CREATE VIEW pinned AS
SELECT d.name AS device, n.operation, n.dtype, n.least_rows, n.most_rows, n.least_cols, n.most_cols, c.version, c.parameters,
       n.author, n.why, n.created, n.device AS device_id
FROM pins n JOIN devices d ON d.id = n.device JOIN configurations c ON c.id = n.configuration
"""

# A row without a reason is a block that was taken away, kept so that it outranks the block where both are imported.
BLOCKED_CONFIGURATIONS = """
CREATE VIEW blocked_configurations AS
SELECT d.name AS device, c.operation, b.dtype, c.version, c.parameters, s.sha AS template_sha, p.rows, p.cols, b.reason, b.created,
       b.device AS device_id, b.problem AS problem_id
FROM blocked b
JOIN devices d ON d.id = b.device
JOIN configurations c ON c.id = b.configuration
JOIN templates s ON s.id = b.template
LEFT JOIN problems p ON p.id = b.problem
WHERE b.reason <> ''
"""

MISSED = """
CREATE VIEW missed AS
SELECT d.name AS device, p.operation, p.dtype, p.rows, p.cols, p.input_stride, p.output_stride, p.input_alignment, p.output_alignment,
       p.in_place, m.count, m.tier, c.version, c.parameters, m.last
FROM misses m
JOIN devices d ON d.id = m.device
JOIN problems p ON p.id = m.problem
LEFT JOIN configurations c ON c.id = m.configuration
"""

ACTIVE_SELECTORS = """
CREATE VIEW active_selectors AS
SELECT d.name AS device, l.operation, l.dtype, l.kind, l.body, l.train_sha, l.regret_geomean, l.regret_p95, l.regret_worst,
       l.created, l.device AS device_id
FROM selectors l JOIN devices d ON d.id = l.device
WHERE NOT EXISTS (SELECT 1 FROM selectors n WHERE (n.device, n.operation, n.dtype) = (l.device, l.operation, l.dtype)
                                              AND (n.created, n.train_sha, n.kind) > (l.created, l.train_sha, l.kind))
"""

VIEWS = {
    "trial_results": TRIAL_RESULTS,
    "best_kernels": BEST_KERNELS,
    "best_per_version": BEST_PER_VERSION,
    "failures": FAILURES,
    "coverage": COVERAGE,
    "dispatchable": DISPATCHABLE,
    "stored_instances": STORED_INSTANCES,
    "pinned": PINNED,
    "active_selectors": ACTIVE_SELECTORS,
    "missed": MISSED,
    "blocked_configurations": BLOCKED_CONFIGURATIONS,
}
