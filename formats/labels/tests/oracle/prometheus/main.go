// Applies relabel rules with Prometheus' own package: reads cases as JSON and writes the results.
// With two numbers as arguments it measures them instead: the rounds per measurement and the number of
// measurements. It writes the nanoseconds per round of the fastest measurement of each case.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
)

type rule struct {
	SourceLabels []string `json:"source_labels"`
	Separator    string   `json:"separator"`
	Regex        string   `json:"regex"`
	Modulus      uint64   `json:"modulus"`
	TargetLabel  string   `json:"target_label"`
	Replacement  string   `json:"replacement"`
	Action       string   `json:"action"`
}

type testCase struct {
	Rules  []rule            `json:"rules"`
	Labels map[string]string `json:"labels"`
}

type result struct {
	Error  string            `json:"error"`
	Keep   bool              `json:"keep"`
	Labels map[string]string `json:"labels"`
}

func (r rule) config() (*relabel.Config, error) {
	config := relabel.DefaultRelabelConfig
	for _, name := range r.SourceLabels {
		config.SourceLabels = append(config.SourceLabels, model.LabelName(name))
	}
	config.Separator = r.Separator
	if r.Regex != "(.*)" {
		regex, err := relabel.NewRegexp(r.Regex)
		if err != nil {
			return nil, err
		}
		config.Regex = regex
	}
	config.Modulus = r.Modulus
	config.TargetLabel = r.TargetLabel
	config.Replacement = r.Replacement
	config.Action = relabel.Action(r.Action)
	return &config, config.Validate()
}

func (c testCase) configs() ([]*relabel.Config, error) {
	var configs []*relabel.Config
	for _, rule := range c.Rules {
		config, err := rule.config()
		if err != nil {
			return nil, err
		}
		configs = append(configs, config)
	}
	return configs, nil
}

func (c testCase) run() result {
	configs, err := c.configs()
	if err != nil {
		return result{Error: err.Error()}
	}
	left, keep := relabel.Process(labels.FromMap(c.Labels), configs...)
	return result{Keep: keep, Labels: left.Map()}
}

func (c testCase) measure(rounds, times int) float64 {
	configs, err := c.configs()
	if err != nil {
		panic(err)
	}
	base := labels.FromMap(c.Labels)
	builder := labels.NewBuilder(base)
	fastest := math.Inf(1)
	for i := 0; i < times; i++ {
		start := time.Now()
		for j := 0; j < rounds; j++ {
			builder.Reset(base)
			relabel.ProcessBuilder(builder, configs...)
		}
		fastest = min(fastest, float64(time.Since(start).Nanoseconds())/float64(rounds))
	}
	return fastest
}

func number(text string) int {
	number, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return number
}

func main() {
	var cases []testCase
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	if len(os.Args) > 2 {
		for _, c := range cases {
			fmt.Println(c.measure(number(os.Args[1]), number(os.Args[2])))
		}
		return
	}
	results := make([]result, 0, len(cases))
	for _, c := range cases {
		results = append(results, c.run())
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		panic(err)
	}
}
