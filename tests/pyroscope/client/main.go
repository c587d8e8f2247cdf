// Calls a server with the client that Grafana uses, generated from Pyroscope's own definitions.
//
// Arguments: the URL of the server, and a value for the header Authorization, which may be empty.
// Standard input: a JSON array of calls. Standard output: the result of each.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"connectrpc.com/connect"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/querier/v1/querierv1connect"
	settingsv1 "github.com/grafana/pyroscope/api/gen/proto/go/settings/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/settings/v1/settingsv1connect"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

type call struct {
	Method  string          `json:"method"`
	Request json.RawMessage `json:"request"`
	// The client's codec: proto, json, or gzip for compressed proto.
	Codec string `json:"codec"`
}

type outcome struct {
	Answer  json.RawMessage `json:"answer,omitempty"`
	Code    string          `json:"code,omitempty"`
	Message string          `json:"message,omitempty"`
}

var options = map[string][]connect.ClientOption{
	"proto": nil,
	"json":  {connect.WithProtoJSON()},
	"gzip":  {connect.WithSendGzip()},
}

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(url, authorization string) error {
	var calls []call
	if err := json.NewDecoder(os.Stdin).Decode(&calls); err != nil {
		return err
	}
	outcomes := []outcome{}
	for _, call := range calls {
		outcome, err := answer(url, authorization, call)
		if err != nil {
			return fmt.Errorf("%s: %w", call.Method, err)
		}
		outcomes = append(outcomes, outcome)
	}
	return json.NewEncoder(os.Stdout).Encode(outcomes)
}

func answer(url, authorization string, call call) (outcome, error) {
	querier := querierv1connect.NewQuerierServiceClient(http.DefaultClient, url, options[call.Codec]...)
	settings := settingsv1connect.NewSettingsServiceClient(http.DefaultClient, url, options[call.Codec]...)
	switch call.Method {
	case "ProfileTypes":
		return send(querier.ProfileTypes, &querierv1.ProfileTypesRequest{}, authorization, call)
	case "LabelNames":
		return send(querier.LabelNames, &typesv1.LabelNamesRequest{}, authorization, call)
	case "LabelValues":
		return send(querier.LabelValues, &typesv1.LabelValuesRequest{}, authorization, call)
	case "Series":
		return send(querier.Series, &querierv1.SeriesRequest{}, authorization, call)
	case "SelectSeries":
		return send(querier.SelectSeries, &querierv1.SelectSeriesRequest{}, authorization, call)
	case "SelectMergeStacktraces":
		return send(querier.SelectMergeStacktraces, &querierv1.SelectMergeStacktracesRequest{}, authorization, call)
	case "SelectMergeProfile":
		return send(querier.SelectMergeProfile, &querierv1.SelectMergeProfileRequest{}, authorization, call)
	case "SelectHeatmap":
		return send(querier.SelectHeatmap, &querierv1.SelectHeatmapRequest{}, authorization, call)
	case "Diff":
		return send(querier.Diff, &querierv1.DiffRequest{}, authorization, call)
	case "GetProfileStats":
		return send(querier.GetProfileStats, &typesv1.GetProfileStatsRequest{}, authorization, call)
	case "GetSettings":
		return send(settings.Get, &settingsv1.GetSettingsRequest{}, authorization, call)
	}
	return outcome{}, fmt.Errorf("unknown method")
}

func send[Request, Answer any](
	method func(context.Context, *connect.Request[Request]) (*connect.Response[Answer], error),
	message *Request,
	authorization string,
	call call,
) (outcome, error) {
	if err := protojson.Unmarshal(call.Request, any(message).(proto.Message)); err != nil {
		return outcome{}, err
	}
	request := connect.NewRequest(message)
	if authorization != "" {
		request.Header().Set("Authorization", authorization)
	}
	response, err := method(context.Background(), request)
	if err != nil {
		code := connect.CodeOf(err)
		return outcome{Code: code.String(), Message: err.Error()}, nil
	}
	text, err := protojson.Marshal(any(response.Msg).(proto.Message))
	return outcome{Answer: text}, err
}
