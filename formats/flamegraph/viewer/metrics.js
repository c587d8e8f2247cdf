// The numbers of a component, from its metrics: sums, rates and dropped samples.
import { formatNumber, formatRate } from './format.js';

// Counters of dropped samples are named like this, whatever the component. What an exporter refused or failed to send is in
// `profcol_exporter_dropped_samples`, unless its receiver sends it again.
const DROPS = /_(dropped|lost)_(profile_)?samples$|^otelcol_receiver_failed_profile_samples$/;

// The sum of a metric over all series of a component; null if there are none.
export function metricOf(metrics, name, kind, id) {
  const matching = metrics.filter((series) => series.name === name && series.labels[kind] === id);
  return matching.length === 0 ? null : matching.reduce((sum, { value }) => sum + value, 0);
}

// The rate per second between two polls; null without an earlier poll or after a counter reset.
export function rateOf(now, before, seconds) {
  if (now === null || before === null || before === undefined || !(seconds > 0) || now < before) return null;
  return (now - before) / seconds;
}

function samplesByReason(metrics, kind, id) {
  const reasons = new Map();
  for (const { name, labels, value, help } of metrics) {
    if (labels[kind] !== id || !(value > 0) || !DROPS.test(name)) continue;
    const reason = labels.reason ? labels.reason.replaceAll('_', ' ') : help.replace(/\.$/, '');
    reasons.set(reason, (reasons.get(reason) ?? 0) + value);
  }
  return reasons;
}

// The dropped samples of a component with their rate, in all and by reason, the most first. `before` are the metrics of an earlier poll.
export function dropsOf(metrics, before, seconds, kind, id) {
  const earlier = before ? samplesByReason(before, kind, id) : null;
  const reasons = [...samplesByReason(metrics, kind, id)].map(([reason, samples]) => (
    { reason, samples, rate: rateOf(samples, earlier && (earlier.get(reason) ?? 0), seconds) }
  )).sort((a, b) => b.samples - a.samples);
  const sum = (values) => (values.includes(null) ? null : values.reduce((total, value) => total + value, 0));
  return { reasons, samples: sum(reasons.map(({ samples }) => samples)), rate: sum(reasons.map(({ rate }) => rate)) };
}

// In one line; empty if nothing was dropped.
export function describeDrops({ samples, rate }) {
  if (samples === 0) return '';
  return rate === null ? `${formatNumber(samples)} dropped` : `${formatRate(rate)} dropped/s, ${formatNumber(samples)} in all`;
}
