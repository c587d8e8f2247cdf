# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_profcol_global_optspecs
    string join \n config= set= feature-gates= h/help V/version
end

function __fish_profcol_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_profcol_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_profcol_using_subcommand
    set -l cmd (__fish_profcol_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c profcol -n "__fish_profcol_needs_command" -l config -d 'A file, or `file:`, `env:`, `yaml:`, `http:`, `https:` URI; repeat it to merge several, left to right. Default: profile this host and show it at http://127.0.0.1:7071/' -r
complete -c profcol -n "__fish_profcol_needs_command" -l set -d 'Override one value of the configuration, such as `receivers.ebpf_cpu.frequency=19`' -r
complete -c profcol -n "__fish_profcol_needs_command" -l feature-gates -d 'Accepted for compatibility with the OpenTelemetry Collector; has no effect' -r
complete -c profcol -n "__fish_profcol_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c profcol -n "__fish_profcol_needs_command" -s V -l version -d 'Print version'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "run" -d 'Run the pipelines of a configuration (the default)'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "record" -d 'Profile this host, some processes or a command for a while, and write one file'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "top" -d 'Show live CPU usage of processes, units, pods, and their functions with callers and callees'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "convert" -d 'Write a profile in another format'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "diff" -d 'Compare two profiles by function'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "doctor" -d 'Check that this host and the destinations meet a configuration\'s requirements, and explain how to fix what is missing'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "validate" -d 'Check a configuration and report all errors, without opening files or connections'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "print-config" -d 'Print the effective configuration: merged, expanded, with all defaults'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "upload" -d 'Upload recorded profiles to a Parca server, and exit'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "components" -d 'List the components in this binary'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "featuregate" -d 'List feature gates (profcol has none)'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "processes" -d 'List the attributes the processors would set for each process on this host; `--config` supplies the options of the `container` processor'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "relabel" -d 'Test relabel rules'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "storage" -d 'Inspect the queues of `file_storage` and the history of `live_view` on disk'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "schema" -d 'Print the JSON Schema of the whole configuration, for editors'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "version" -d 'Print the version'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "completions" -d 'Print a completion script for a shell'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "man" -d 'Print the manual page, or that of a command'
complete -c profcol -n "__fish_profcol_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c profcol -n "__fish_profcol_using_subcommand run" -l config -d 'A file, or `file:`, `env:`, `yaml:`, `http:`, `https:` URI; repeat it to merge several, left to right. Default: profile this host and show it at http://127.0.0.1:7071/' -r
complete -c profcol -n "__fish_profcol_using_subcommand run" -l set -d 'Override one value of the configuration, such as `receivers.ebpf_cpu.frequency=19`' -r
complete -c profcol -n "__fish_profcol_using_subcommand run" -l feature-gates -d 'Accepted for compatibility with the OpenTelemetry Collector; has no effect' -r
complete -c profcol -n "__fish_profcol_using_subcommand run" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand record" -s F -l frequency -d 'Samples per second on each busy CPU' -r
complete -c profcol -n "__fish_profcol_using_subcommand record" -s d -l duration -d 'How long to record, such as `10s` or `2m`; default: until Ctrl-C, or until the command or the processes exit' -r
complete -c profcol -n "__fish_profcol_using_subcommand record" -s p -l pid -d 'Only these processes, separated by commas' -r
complete -c profcol -n "__fish_profcol_using_subcommand record" -l comm -d 'Only processes with this name; `*` matches any text' -r
complete -c profcol -n "__fish_profcol_using_subcommand record" -l cgroup -d 'Only processes in this cgroup; `*` matches any text' -r
complete -c profcol -n "__fish_profcol_using_subcommand record" -s o -l output -d 'Output file; the extension selects the format: .html, .svg, .pb.gz, .folded, .speedscope.json, .firefox.json, .firefox.json.gz, .otlp, .otlp.json; `-` writes .pb.gz to standard output' -r -F
complete -c profcol -n "__fish_profcol_using_subcommand record" -l config -r
complete -c profcol -n "__fish_profcol_using_subcommand record" -l feature-gates -r
complete -c profcol -n "__fish_profcol_using_subcommand record" -l set -d 'Override one value of the configuration, such as `receivers.ebpf_cpu.frequency=19`' -r
complete -c profcol -n "__fish_profcol_using_subcommand record" -s a -l all -d 'Every process, even if a command is given'
complete -c profcol -n "__fish_profcol_using_subcommand record" -l open -d 'Open the file in a browser when done'
complete -c profcol -n "__fish_profcol_using_subcommand record" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand top" -s F -l frequency -d 'Samples per second on each busy CPU' -r
complete -c profcol -n "__fish_profcol_using_subcommand top" -s p -l pid -d 'Only these processes, separated by commas' -r
complete -c profcol -n "__fish_profcol_using_subcommand top" -s i -l interval -d 'Refresh interval, such as `1s`' -r
complete -c profcol -n "__fish_profcol_using_subcommand top" -s w -l window -d 'Show samples of this window up to now; default: 10s, or the interval if tables are printed' -r
complete -c profcol -n "__fish_profcol_using_subcommand top" -s n -l iterations -d 'Exit after this many tables' -r
complete -c profcol -n "__fish_profcol_using_subcommand top" -l rows -d 'Rows per printed table; default: 20' -r
complete -c profcol -n "__fish_profcol_using_subcommand top" -l config -r
complete -c profcol -n "__fish_profcol_using_subcommand top" -l feature-gates -r
complete -c profcol -n "__fish_profcol_using_subcommand top" -l set -d 'Override one value of the configuration, such as `receivers.ebpf_cpu.frequency=19`' -r
complete -c profcol -n "__fish_profcol_using_subcommand top" -s b -l batch -d 'Print one table after another; implied by the options below, and if the output is not a terminal'
complete -c profcol -n "__fish_profcol_using_subcommand top" -l json -d 'Print one JSON object per line'
complete -c profcol -n "__fish_profcol_using_subcommand top" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand convert" -l config -r
complete -c profcol -n "__fish_profcol_using_subcommand convert" -l set -r
complete -c profcol -n "__fish_profcol_using_subcommand convert" -l feature-gates -r
complete -c profcol -n "__fish_profcol_using_subcommand convert" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand diff" -l compare -d 'How values are compared' -r -f -a "share\t'As a share of each profile'
value\t'As absolute values'"
complete -c profcol -n "__fish_profcol_using_subcommand diff" -l by -d 'Which time of a function is compared; other values, such as bytes, accordingly' -r -f -a "self\t'Self time: without the functions that it calls'
total\t'Total time: with the functions that it calls'"
complete -c profcol -n "__fish_profcol_using_subcommand diff" -l functions -d 'Functions to show' -r
complete -c profcol -n "__fish_profcol_using_subcommand diff" -l fail-over -d 'Exit with code 1 if the share of a function grew by more than this, such as `5%` of the profile. With `--compare value`: if a function, or the whole profile, grew by more than this, as a share of the profile before' -r
complete -c profcol -n "__fish_profcol_using_subcommand diff" -s o -l output -d 'Write a differential flame graph: an HTML page or an SVG image, by the file extension' -r -F
complete -c profcol -n "__fish_profcol_using_subcommand diff" -l config -r
complete -c profcol -n "__fish_profcol_using_subcommand diff" -l set -r
complete -c profcol -n "__fish_profcol_using_subcommand diff" -l feature-gates -r
complete -c profcol -n "__fish_profcol_using_subcommand diff" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c profcol -n "__fish_profcol_using_subcommand doctor" -l config -d 'A file, or `file:`, `env:`, `yaml:`, `http:`, `https:` URI; repeat it to merge several, left to right. Default: profile this host and show it at http://127.0.0.1:7071/' -r
complete -c profcol -n "__fish_profcol_using_subcommand doctor" -l set -d 'Override one value of the configuration, such as `receivers.ebpf_cpu.frequency=19`' -r
complete -c profcol -n "__fish_profcol_using_subcommand doctor" -l feature-gates -d 'Accepted for compatibility with the OpenTelemetry Collector; has no effect' -r
complete -c profcol -n "__fish_profcol_using_subcommand doctor" -l json -d 'Print an array of objects with `component`, `check`, `status` (`ok`, `warn`, `fail`), `found`, `consequence` and `fix`'
complete -c profcol -n "__fish_profcol_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand validate" -l config -d 'A file, or `file:`, `env:`, `yaml:`, `http:`, `https:` URI; repeat it to merge several, left to right. Default: profile this host and show it at http://127.0.0.1:7071/' -r
complete -c profcol -n "__fish_profcol_using_subcommand validate" -l set -d 'Override one value of the configuration, such as `receivers.ebpf_cpu.frequency=19`' -r
complete -c profcol -n "__fish_profcol_using_subcommand validate" -l feature-gates -d 'Accepted for compatibility with the OpenTelemetry Collector; has no effect' -r
complete -c profcol -n "__fish_profcol_using_subcommand validate" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand print-config" -l mode -r -f -a "redacted\t'Replace secrets'
unredacted\t'Print secrets'"
complete -c profcol -n "__fish_profcol_using_subcommand print-config" -l format -r -f -a "yaml\t''
json\t''"
complete -c profcol -n "__fish_profcol_using_subcommand print-config" -l validate -d 'Also check that its components can be built' -r -f -a "true\t''
false\t''"
complete -c profcol -n "__fish_profcol_using_subcommand print-config" -l config -d 'A file, or `file:`, `env:`, `yaml:`, `http:`, `https:` URI; repeat it to merge several, left to right. Default: profile this host and show it at http://127.0.0.1:7071/' -r
complete -c profcol -n "__fish_profcol_using_subcommand print-config" -l set -d 'Override one value of the configuration, such as `receivers.ebpf_cpu.frequency=19`' -r
complete -c profcol -n "__fish_profcol_using_subcommand print-config" -l feature-gates -d 'Accepted for compatibility with the OpenTelemetry Collector; has no effect' -r
complete -c profcol -n "__fish_profcol_using_subcommand print-config" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c profcol -n "__fish_profcol_using_subcommand upload" -l to -d 'Server: `grpcs://HOST:PORT`, `grpc://HOST:PORT` for plaintext, or `HOST:PORT`' -r
complete -c profcol -n "__fish_profcol_using_subcommand upload" -l header -d 'Header to send with each request; may be repeated' -r
complete -c profcol -n "__fish_profcol_using_subcommand upload" -l bearer-token-file -d 'File with the bearer token' -r
complete -c profcol -n "__fish_profcol_using_subcommand upload" -l ca-file -d 'CA certificate of the server, if it is not in the system\'s store' -r
complete -c profcol -n "__fish_profcol_using_subcommand upload" -l give-up-after -d 'Retry for this long while the server is unreachable; `0s` retries forever' -r
complete -c profcol -n "__fish_profcol_using_subcommand upload" -l config -d 'A file, or `file:`, `env:`, `yaml:`, `http:`, `https:` URI; repeat it to merge several, left to right. Default: profile this host and show it at http://127.0.0.1:7071/' -r
complete -c profcol -n "__fish_profcol_using_subcommand upload" -l set -d 'Override one value of the configuration, such as `receivers.ebpf_cpu.frequency=19`' -r
complete -c profcol -n "__fish_profcol_using_subcommand upload" -l feature-gates -d 'Accepted for compatibility with the OpenTelemetry Collector; has no effect' -r
complete -c profcol -n "__fish_profcol_using_subcommand upload" -l dry-run -d 'List the recordings and what was already uploaded, without sending or deleting anything'
complete -c profcol -n "__fish_profcol_using_subcommand upload" -l keep -d 'Mark files as delivered instead of deleting them'
complete -c profcol -n "__fish_profcol_using_subcommand upload" -l insecure -d 'Use plaintext if the server URL has no scheme'
complete -c profcol -n "__fish_profcol_using_subcommand upload" -l insecure-skip-verify -d 'Do not verify the server\'s certificate'
complete -c profcol -n "__fish_profcol_using_subcommand upload" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand components" -l config -r
complete -c profcol -n "__fish_profcol_using_subcommand components" -l set -r
complete -c profcol -n "__fish_profcol_using_subcommand components" -l feature-gates -r
complete -c profcol -n "__fish_profcol_using_subcommand components" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand featuregate" -l config -r
complete -c profcol -n "__fish_profcol_using_subcommand featuregate" -l set -r
complete -c profcol -n "__fish_profcol_using_subcommand featuregate" -l feature-gates -r
complete -c profcol -n "__fish_profcol_using_subcommand featuregate" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand processes" -l pid -d 'Only this process' -r
complete -c profcol -n "__fish_profcol_using_subcommand processes" -l format -r -f -a "yaml\t''
json\t''"
complete -c profcol -n "__fish_profcol_using_subcommand processes" -l config -d 'A file, or `file:`, `env:`, `yaml:`, `http:`, `https:` URI; repeat it to merge several, left to right. Default: profile this host and show it at http://127.0.0.1:7071/' -r
complete -c profcol -n "__fish_profcol_using_subcommand processes" -l set -d 'Override one value of the configuration, such as `receivers.ebpf_cpu.frequency=19`' -r
complete -c profcol -n "__fish_profcol_using_subcommand processes" -l feature-gates -d 'Accepted for compatibility with the OpenTelemetry Collector; has no effect' -r
complete -c profcol -n "__fish_profcol_using_subcommand processes" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand relabel; and not __fish_seen_subcommand_from test help" -l config -d 'A file, or `file:`, `env:`, `yaml:`, `http:`, `https:` URI; repeat it to merge several, left to right. Default: profile this host and show it at http://127.0.0.1:7071/' -r
complete -c profcol -n "__fish_profcol_using_subcommand relabel; and not __fish_seen_subcommand_from test help" -l set -d 'Override one value of the configuration, such as `receivers.ebpf_cpu.frequency=19`' -r
complete -c profcol -n "__fish_profcol_using_subcommand relabel; and not __fish_seen_subcommand_from test help" -l feature-gates -d 'Accepted for compatibility with the OpenTelemetry Collector; has no effect' -r
complete -c profcol -n "__fish_profcol_using_subcommand relabel; and not __fish_seen_subcommand_from test help" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand relabel; and not __fish_seen_subcommand_from test help" -f -a "test" -d 'Show labels before and after, and the effect of each rule of the configuration\'s relabel processors'
complete -c profcol -n "__fish_profcol_using_subcommand relabel; and not __fish_seen_subcommand_from test help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c profcol -n "__fish_profcol_using_subcommand relabel; and __fish_seen_subcommand_from test" -l pid -d 'Use the labels of this process' -r
complete -c profcol -n "__fish_profcol_using_subcommand relabel; and __fish_seen_subcommand_from test" -l labels -d 'Use these labels, as `name=value,name=value`' -r
complete -c profcol -n "__fish_profcol_using_subcommand relabel; and __fish_seen_subcommand_from test" -l config -d 'A file, or `file:`, `env:`, `yaml:`, `http:`, `https:` URI; repeat it to merge several, left to right. Default: profile this host and show it at http://127.0.0.1:7071/' -r
complete -c profcol -n "__fish_profcol_using_subcommand relabel; and __fish_seen_subcommand_from test" -l set -d 'Override one value of the configuration, such as `receivers.ebpf_cpu.frequency=19`' -r
complete -c profcol -n "__fish_profcol_using_subcommand relabel; and __fish_seen_subcommand_from test" -l feature-gates -d 'Accepted for compatibility with the OpenTelemetry Collector; has no effect' -r
complete -c profcol -n "__fish_profcol_using_subcommand relabel; and __fish_seen_subcommand_from test" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand relabel; and __fish_seen_subcommand_from help" -f -a "test" -d 'Show labels before and after, and the effect of each rule of the configuration\'s relabel processors'
complete -c profcol -n "__fish_profcol_using_subcommand relabel; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c profcol -n "__fish_profcol_using_subcommand storage; and not __fish_seen_subcommand_from inspect help" -l config -r
complete -c profcol -n "__fish_profcol_using_subcommand storage; and not __fish_seen_subcommand_from inspect help" -l set -r
complete -c profcol -n "__fish_profcol_using_subcommand storage; and not __fish_seen_subcommand_from inspect help" -l feature-gates -r
complete -c profcol -n "__fish_profcol_using_subcommand storage; and not __fish_seen_subcommand_from inspect help" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand storage; and not __fish_seen_subcommand_from inspect help" -f -a "inspect" -d 'List queues and histories, verify every byte, and export them; read-only, safe while profcol runs'
complete -c profcol -n "__fish_profcol_using_subcommand storage; and not __fish_seen_subcommand_from inspect help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c profcol -n "__fish_profcol_using_subcommand storage; and __fish_seen_subcommand_from inspect" -l queue -d 'Only the queue or history of this exporter' -r
complete -c profcol -n "__fish_profcol_using_subcommand storage; and __fish_seen_subcommand_from inspect" -l export -d 'Write the batches to a new file that the `otlp_file` receiver reads: OTLP JSON lines if its name ends with `.jsonl`, else length-prefixed OTLP protobuf' -r -F
complete -c profcol -n "__fish_profcol_using_subcommand storage; and __fish_seen_subcommand_from inspect" -l config -r
complete -c profcol -n "__fish_profcol_using_subcommand storage; and __fish_seen_subcommand_from inspect" -l set -r
complete -c profcol -n "__fish_profcol_using_subcommand storage; and __fish_seen_subcommand_from inspect" -l feature-gates -r
complete -c profcol -n "__fish_profcol_using_subcommand storage; and __fish_seen_subcommand_from inspect" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand storage; and __fish_seen_subcommand_from help" -f -a "inspect" -d 'List queues and histories, verify every byte, and export them; read-only, safe while profcol runs'
complete -c profcol -n "__fish_profcol_using_subcommand storage; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c profcol -n "__fish_profcol_using_subcommand schema" -l config -r
complete -c profcol -n "__fish_profcol_using_subcommand schema" -l set -r
complete -c profcol -n "__fish_profcol_using_subcommand schema" -l feature-gates -r
complete -c profcol -n "__fish_profcol_using_subcommand schema" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand version" -l config -r
complete -c profcol -n "__fish_profcol_using_subcommand version" -l set -r
complete -c profcol -n "__fish_profcol_using_subcommand version" -l feature-gates -r
complete -c profcol -n "__fish_profcol_using_subcommand version" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand completions" -l config -r
complete -c profcol -n "__fish_profcol_using_subcommand completions" -l set -r
complete -c profcol -n "__fish_profcol_using_subcommand completions" -l feature-gates -r
complete -c profcol -n "__fish_profcol_using_subcommand completions" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand man" -l config -r
complete -c profcol -n "__fish_profcol_using_subcommand man" -l set -r
complete -c profcol -n "__fish_profcol_using_subcommand man" -l feature-gates -r
complete -c profcol -n "__fish_profcol_using_subcommand man" -s h -l help -d 'Print help'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "run" -d 'Run the pipelines of a configuration (the default)'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "record" -d 'Profile this host, some processes or a command for a while, and write one file'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "top" -d 'Show live CPU usage of processes, units, pods, and their functions with callers and callees'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "convert" -d 'Write a profile in another format'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "diff" -d 'Compare two profiles by function'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "doctor" -d 'Check that this host and the destinations meet a configuration\'s requirements, and explain how to fix what is missing'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "validate" -d 'Check a configuration and report all errors, without opening files or connections'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "print-config" -d 'Print the effective configuration: merged, expanded, with all defaults'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "upload" -d 'Upload recorded profiles to a Parca server, and exit'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "components" -d 'List the components in this binary'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "featuregate" -d 'List feature gates (profcol has none)'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "processes" -d 'List the attributes the processors would set for each process on this host; `--config` supplies the options of the `container` processor'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "relabel" -d 'Test relabel rules'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "storage" -d 'Inspect the queues of `file_storage` and the history of `live_view` on disk'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "schema" -d 'Print the JSON Schema of the whole configuration, for editors'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "version" -d 'Print the version'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "completions" -d 'Print a completion script for a shell'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "man" -d 'Print the manual page, or that of a command'
complete -c profcol -n "__fish_profcol_using_subcommand help; and not __fish_seen_subcommand_from run record top convert diff doctor validate print-config upload components featuregate processes relabel storage schema version completions man help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c profcol -n "__fish_profcol_using_subcommand help; and __fish_seen_subcommand_from relabel" -f -a "test" -d 'Show labels before and after, and the effect of each rule of the configuration\'s relabel processors'
complete -c profcol -n "__fish_profcol_using_subcommand help; and __fish_seen_subcommand_from storage" -f -a "inspect" -d 'List queues and histories, verify every byte, and export them; read-only, safe while profcol runs'
