// Reads rules and expressions with Prometheus' own packages, and evaluates the alerts on series.
//
// The standard input is the JSON of a request, the output that of an answer. promtool does the same, but would
// bring the clients of all clouds that Prometheus discovers.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/url"
	"os"
	"sort"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

type request struct {
	// The text of a file.
	Rules       string   `json:"rules"`
	Expressions []string `json:"expressions"`
	Cases       []struct {
		// As in the tests of rules: `up{job="profcol"} 1x10 0x5`, a value per minute.
		Series []string `json:"series"`
		// When to look.
		Minute int `json:"minute"`
	} `json:"cases"`
}

type answer struct {
	// Of the rules; then nothing is evaluated.
	Errors []string `json:"errors"`
	// The error of each expression, or nothing.
	Expressions []string `json:"expressions"`
	// The firing alerts of each case.
	Firing [][]alert `json:"firing"`
}

type alert struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func main() {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	var asked request
	if err := json.Unmarshal(input, &asked); err != nil {
		log.Fatal(err)
	}
	said := answer{Errors: []string{}, Expressions: []string{}, Firing: [][]alert{}}
	for _, expression := range asked.Expressions {
		text := ""
		if _, err := parser.ParseExpr(expression); err != nil {
			text = err.Error()
		}
		said.Expressions = append(said.Expressions, text)
	}
	groups, errs := rulefmt.Parse([]byte(asked.Rules), false)
	for _, err := range errs {
		said.Errors = append(said.Errors, err.Error())
	}
	if len(errs) == 0 {
		engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true})
		for _, it := range asked.Cases {
			series, err := read(it.Series)
			if err != nil {
				log.Fatal(err)
			}
			firing := []alert{}
			for _, group := range groups.Groups {
				for _, rule := range group.Rules {
					found, err := evaluate(engine, series, rule, it.Minute)
					if err != nil {
						log.Fatalf("%s: %v", rule.Alert, err)
					}
					firing = append(firing, found...)
				}
			}
			said.Firing = append(said.Firing, firing)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		log.Fatal(err)
	}
}

type series struct {
	labels  labels.Labels
	samples []chunks.Sample
}

// A chunks.Sample.
type sample struct {
	millis int64
	value  float64
}

func (s sample) T() int64                      { return s.millis }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

func minute(count int) time.Time {
	return time.Unix(int64(count)*60, 0).UTC()
}

func read(descriptions []string) ([]series, error) {
	var all []series
	for _, description := range descriptions {
		set, values, err := parser.ParseSeriesDesc(description)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", description, err)
		}
		made := series{labels: set}
		for count, value := range values {
			if !value.Omitted {
				made.samples = append(made.samples, sample{timestamp.FromTime(minute(count)), value.Value})
			}
		}
		all = append(all, made)
	}
	return all, nil
}

// The instances of an alert that fire in this minute: those that the expression has returned for as long as `for` says.
func evaluate(engine *promql.Engine, all []series, rule rulefmt.Rule, at int) ([]alert, error) {
	since := map[uint64]time.Time{}
	var firing []alert
	for count := 0; count <= at; count++ {
		now := minute(count)
		vector, err := instant(engine, all, rule.Expr, now)
		if err != nil {
			return nil, err
		}
		pending := map[uint64]time.Time{}
		firing = nil
		for _, found := range vector {
			set := found.Metric.DropMetricName()
			start, was := since[set.Hash()]
			if !was {
				start = now
			}
			pending[set.Hash()] = start
			if now.Sub(start) >= time.Duration(rule.For) {
				made, err := filled(engine, all, rule, set, found.F, now)
				if err != nil {
					return nil, err
				}
				firing = append(firing, made)
			}
		}
		since = pending
	}
	return firing, nil
}

func instant(engine *promql.Engine, all []series, expression string, now time.Time) (promql.Vector, error) {
	ctx := context.Background()
	query, err := engine.NewInstantQuery(ctx, storage.QueryableFunc(func(_, _ int64) (storage.Querier, error) {
		return querier{all}, nil
	}), nil, expression, now)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	vector, err := query.Exec(ctx).Vector()
	// The result is reused once the query is closed.
	return append(promql.Vector{}, vector...), err
}

// The alert with its labels and annotations.
func filled(engine *promql.Engine, all []series, rule rulefmt.Rule, set labels.Labels, value float64, now time.Time) (alert, error) {
	data := template.AlertTemplateData(set.Map(), nil, "", promql.Sample{F: value, Metric: set})
	const variables = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"
	ask := func(_ context.Context, expression string, at time.Time) (promql.Vector, error) {
		return instant(engine, all, expression, at)
	}
	expand := func(texts, into map[string]string) error {
		for name, text := range texts {
			expanded, err := template.NewTemplateExpander(context.Background(), variables+text, rule.Alert, data, model.TimeFromUnix(now.Unix()), ask, &url.URL{}, nil).Expand()
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			into[name] = expanded
		}
		return nil
	}
	made := alert{Name: rule.Alert, Labels: set.Map(), Annotations: map[string]string{}}
	if err := expand(rule.Labels, made.Labels); err != nil {
		return alert{}, err
	}
	return made, expand(rule.Annotations, made.Annotations)
}

// The series in memory.
type querier struct {
	all []series
}

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var found []storage.Series
	for _, it := range q.all {
		matches := true
		for _, matcher := range matchers {
			matches = matches && matcher.Matches(it.labels.Get(matcher.Name))
		}
		if matches {
			found = append(found, storage.NewListSeries(it.labels, it.samples))
		}
	}
	sort.Slice(found, func(i, j int) bool { return labels.Compare(found[i].Labels(), found[j].Labels()) < 0 })
	return &set{found: found, at: -1}
}

func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) Close() error { return nil }

type set struct {
	found []storage.Series
	at    int
}

func (s *set) Next() bool {
	s.at++
	return s.at < len(s.found)
}

func (s *set) At() storage.Series                { return s.found[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }
