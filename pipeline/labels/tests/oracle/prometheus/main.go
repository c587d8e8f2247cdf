// Applies relabel rules by Prometheus' own package: reads cases as JSON, writes what they come to.
// With a number as argument it measures the first case instead, in nanoseconds per label set.
package main

import (
	"encoding/json"
	"fmt"
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

func (c testCase) measure(rounds int) int64 {
	configs, err := c.configs()
	if err != nil {
		panic(err)
	}
	base := labels.FromMap(c.Labels)
	builder := labels.NewBuilder(base)
	start := time.Now()
	for i := 0; i < rounds; i++ {
		builder.Reset(base)
		relabel.ProcessBuilder(builder, configs...)
	}
	return time.Since(start).Nanoseconds() / int64(rounds)
}

func main() {
	var cases []testCase
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	if len(os.Args) > 1 {
		rounds, err := strconv.Atoi(os.Args[1])
		if err != nil {
			panic(err)
		}
		for _, c := range cases {
			fmt.Println(c.measure(rounds))
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
