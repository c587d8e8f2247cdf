//! `cargo xtask helm`: checks the chart and the manifests against Kubernetes' schemas, and their configurations with
//! profcol.
//!
//! Helm and kubectl-validate, which embeds the schemas of Kubernetes, are built from their Go modules into
//! `target/peers`. The schemas of the Prometheus Operator's objects are in its Go module.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::report::Report;
use crate::workspace::Workspace;
use crate::{dist, process};

const WHAT: &str = "the Helm chart";

const HELM: (&str, &str, &str) = ("helm", "helm.sh/helm/v3/cmd/helm", "v3.22.0");
const VALIDATE: (&str, &str, &str) = ("kubectl-validate", "sigs.k8s.io/kubectl-validate", "v0.0.4");

/// The newest version supported by this kubectl-validate; the chart uses older APIs.
const KUBERNETES: &str = "1.29";

/// The module and version whose directory `example/prometheus-operator-crd` has the operator's schemas.
const OPERATOR: &str = "github.com/prometheus-operator/prometheus-operator@v0.85.0";

/// Pages with commands for the chart.
const PAGES: [&str; 2] = ["docs/install.md", "deploy/helm/profcol/README.md"];

/// Forbidden in all objects: an agent uses capabilities instead.
const FORBIDDEN: &str = "privileged: true";

pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    if !process::succeeds(Command::new("go").arg("version")) {
        report.skip(WHAT, "go not found (Debian: golang)");
        return Ok(());
    }
    let peers = workspace.target.join("peers");
    let helm = install(&peers, HELM)?;
    let validate = Validator {
        program: install(&peers, VALIDATE)?,
        operator: downloaded(OPERATOR)?.join("example/prometheus-operator-crd"),
    };
    process::run(&mut workspace.cargo(&["build", "--quiet", "--workspace", "--bin", "profcol"]))?;
    let profcol = workspace.target.join("debug/profcol");
    let chart = workspace.root.join("deploy/helm/profcol");
    let rendered = workspace.target.join("helm");
    fs::create_dir_all(&rendered).context("failed to create a directory")?;

    let mut lint = Command::new(&helm);
    lint.args(["lint", "--strict", "--set", "backend=backend:4317"]);
    process::run(lint.arg(&chart))?;
    let mut configurations = 0;
    for values in yaml_in(&chart.join("ci"))? {
        let objects = process::output(template(&helm, &chart).arg("--values").arg(&values))?;
        ensure!(
            !objects.contains(FORBIDDEN),
            "{}: {FORBIDDEN}",
            values.display()
        );
        let name = values.file_name().unwrap_or_default();
        let file = rendered.join(name);
        fs::write(&file, &objects).context("failed to write the rendered objects")?;
        validate.check(&file)?;
        if let Some(configuration) = configuration(&objects) {
            let file = rendered.join("config.yaml");
            fs::write(&file, configuration).context("failed to write a configuration")?;
            process::run(
                Command::new(&profcol)
                    .arg("validate")
                    .arg("--config")
                    .arg(&file),
            )?;
            configurations += 1;
        }
    }
    ensure!(
        configurations >= 3,
        "{configurations} configurations in the chart's cases"
    );
    let archive = dist::chart(workspace, &rendered)?;
    check_pages(workspace, &helm, &validate, &archive, &rendered)?;
    let all = chart.join("ci/daemonset-everything-values.yaml");
    let [from_archive, from_directory] = [&archive, &chart]
        .map(|chart| process::output(template(&helm, chart).arg("--values").arg(&all)));
    ensure!(
        from_archive? == from_directory?,
        "{} renders other objects than its directory",
        archive.display()
    );
    for (settings, reason) in [
        (
            "mode=daemonset",
            "set `backend` to the destination of the profiles",
        ),
        ("mode=sidecars", "values don't meet the specifications"),
        (
            "mode=sidecar,backend=b:4317,nodeSelector.disk=ssd",
            "set `nodeSelector` in the application's pods",
        ),
        (
            "mode=sidecar,backend=b:4317,networkPolicy.enabled=true",
            "a network policy selects pods, which are the application's",
        ),
        (
            "mode=sidecar,backend=b:4317,presets.kubernetesAttributes.enabled=true",
            "a sidecar gets no rights in the cluster",
        ),
        (
            "backend=b:4317,podMonitor.enabled=true,ports.metrics.enabled=false",
            "podMonitor.enabled needs the port `metrics`",
        ),
        (
            "resorces.limits.memory=1Gi",
            "additional properties 'resorces' not allowed",
        ),
    ] {
        refuses(template(&helm, &chart).args(["--set", settings]), reason)?;
    }
    refuses(
        template(&helm, &chart)
            .args(["--set", "mode=sidecar,backend=b:4317"])
            .args(["--kube-version", "1.28"]),
        "mode: sidecar needs Kubernetes 1.29",
    )?;
    for (settings, watches) in [
        ("backend=b:4317", false),
        ("backend=b:4317,reload.watch=true", true),
        ("backend=b:4317,enableConfigChecksumAnnotation=false", true),
        ("configMap.create=false,configMap.existingName=own", true),
        (
            "configMap.create=false,configMap.existingName=own,reload.watch=false",
            false,
        ),
    ] {
        let objects = process::output(template(&helm, &chart).args(["--set", settings]))?;
        ensure!(
            objects.contains("--set=service.reload.watch=true") == watches,
            "{settings}: the pods must {}watch their configuration",
            if watches { "" } else { "not " }
        );
    }
    let shop = application(&chart, &rendered)?;
    let objects =
        process::output(template(&helm, &shop).args(["--set", "profcol.backend=b:4317"]))?;
    ensure!(
        objects.contains("profcol-sidecar: profcol") && objects.contains("restartPolicy: Always"),
        "the application's chart has no sidecar: {objects}"
    );
    let file = rendered.join("application.yaml");
    fs::write(&file, &objects).context("failed to write the rendered objects")?;
    validate.check(&file)?;
    for manifest in yaml_in(&workspace.root.join("deploy/kubernetes"))? {
        let text = fs::read_to_string(&manifest).context("failed to read a manifest")?;
        ensure!(
            !text.contains(FORBIDDEN),
            "{}: {FORBIDDEN}",
            manifest.display()
        );
        validate.check(&manifest)?;
    }
    Ok(())
}

/// Renders the chart with the exact arguments and values of the pages, and checks the objects and configurations.
fn check_pages(
    workspace: &Workspace,
    helm: &Path,
    validate: &Validator,
    archive: &Path,
    rendered: &Path,
) -> Result<()> {
    let profcol = workspace.target.join("debug/profcol");
    let check = |page: &str, arguments: &[&str], values: &str| -> Result<String> {
        let chart = match arguments.get(1) {
            Some(chart) if chart.ends_with(".tgz") => archive.to_path_buf(),
            Some(chart) => workspace.root.join(chart),
            None => bail!("{page}: no chart: {arguments:?}"),
        };
        let file = rendered.join("values.yaml");
        fs::write(&file, values).context("failed to write values")?;
        let mut template = Command::new(helm);
        template.args(["template", arguments[0]]).arg(chart);
        template.args(["--kube-version", KUBERNETES, "--values"]);
        template.arg(file).args(&arguments[2..]);
        let objects = process::output(&mut template).with_context(|| page.to_owned())?;
        let file = rendered.join("page.yaml");
        fs::write(&file, &objects).context("failed to write the rendered objects")?;
        validate.check(&file)?;
        let configuration = configuration(&objects);
        let configuration = configuration.with_context(|| format!("{page}: no configuration"))?;
        let file = rendered.join("config.yaml");
        fs::write(&file, configuration).context("failed to write a configuration")?;
        process::run(
            Command::new(&profcol)
                .args(["validate", "--config"])
                .arg(file),
        )?;
        Ok(objects)
    };
    let mut checked = 0;
    for page in PAGES {
        let text =
            fs::read_to_string(workspace.root.join(page)).context("failed to read a page")?;
        let commands = blocks(&text, "console").flat_map(str::lines);
        let commands: Vec<&str> = commands
            .filter_map(|line| line.strip_prefix("$ "))
            .collect();
        let mut objects = String::new();
        for command in &commands {
            if let Some(arguments) = command.strip_prefix("helm install ") {
                let arguments: Vec<&str> = arguments.split(' ').collect();
                objects += &check(page, &arguments, "")?;
                checked += 1;
            }
        }
        // `kubectl get configmap NAME …`, in whatever place of a command.
        let read = commands
            .iter()
            .filter_map(|it| it.split_once("kubectl get configmap "));
        for name in read.filter_map(|(_, rest)| rest.split(' ').next()) {
            let named = format!("kind: ConfigMap\nmetadata:\n  name: {name}\n");
            ensure!(
                objects.contains(&named),
                "{page}: no ConfigMap {name} is rendered"
            );
        }
        for values in blocks(&text, "yaml").filter(|_| page.ends_with("profcol/README.md")) {
            let arguments = ["profcol", "deploy/helm/profcol", "--set", "backend=b:4317"];
            check(page, &arguments, values)?;
            checked += 1;
        }
    }
    ensure!(checked > 5, "{checked} commands and values on the pages");
    Ok(())
}

/// The blocks of a page in this language.
fn blocks<'a>(page: &'a str, language: &str) -> impl Iterator<Item = &'a str> {
    let opening = format!("```{language}\n");
    let starts = page
        .match_indices(&opening)
        .map(|(start, it)| start + it.len());
    let starts: Vec<usize> = starts.collect();
    starts.into_iter().filter_map(move |start| {
        let rest = page.get(start..)?;
        Some(rest.split_once("```")?.0)
    })
}

fn template(helm: &Path, chart: &Path) -> Command {
    let mut template = Command::new(helm);
    template.args(["template", "profcol"]).arg(chart);
    template.args(["--namespace", "profcol", "--kube-version", KUBERNETES]);
    template
}

/// A chart with the Deployment of the chart's page, which includes the sidecar.
fn application(profcol: &Path, rendered: &Path) -> Result<PathBuf> {
    let page = fs::read_to_string(profcol.join("README.md")).context("failed to read the page")?;
    let deployment = blocks(&page, "gotmpl").next();
    let deployment = deployment.context("the chart's page has no template of an application")?;
    let chart = rendered.join("shop");
    for (name, text) in [
        (
            "Chart.yaml",
            "apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies: [{name: profcol, version: 0.1.0}]\n",
        ),
        ("values.yaml", "profcol: {mode: sidecar}\n"),
        ("templates/deployment.yaml", deployment),
    ] {
        let file = chart.join(name);
        fs::create_dir_all(file.parent().context("a file has a directory")?)
            .and_then(|()| fs::write(&file, text))
            .with_context(|| format!("failed to write {}", file.display()))?;
    }
    let charts = chart.join("charts");
    fs::create_dir_all(&charts).context("failed to create a directory")?;
    process::run(
        Command::new("cp")
            .arg("-rT")
            .arg(profcol)
            .arg(charts.join("profcol")),
    )?;
    Ok(chart)
}

struct Validator {
    program: PathBuf,
    /// The schemas of the Prometheus Operator.
    operator: PathBuf,
}

impl Validator {
    fn check(&self, objects: &Path) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["--version", KUBERNETES, "--local-crds"]);
        process::run(command.arg(&self.operator).arg(objects))
    }
}

fn refuses(command: &mut Command, reason: &str) -> Result<()> {
    match process::output(command) {
        Ok(_) => bail!("{command:?} succeeded; expected: {reason}"),
        Err(error) if error.to_string().contains(reason) => Ok(()),
        Err(error) => Err(error.context(format!("expected: {reason}"))),
    }
}

/// The configuration in the ConfigMap, unindented.
fn configuration(objects: &str) -> Option<String> {
    let (_, rest) = objects.split_once("\n  config.yaml: |\n")?;
    let lines = rest.lines().map_while(|line| line.strip_prefix("    "));
    Some(lines.map(|line| format!("{line}\n")).collect())
}

/// Helm, built unless it exists.
pub fn program(workspace: &Workspace) -> Result<PathBuf> {
    install(&workspace.target.join("peers"), HELM)
}

/// Builds a program, unless this version exists.
fn install(peers: &Path, (name, package, version): (&str, &str, &str)) -> Result<PathBuf> {
    let program = peers.join(format!("{name}-{version}"));
    if program.exists() {
        return Ok(program);
    }
    fs::create_dir_all(peers).context("failed to create a directory")?;
    let package = format!("{package}@{version}");
    process::run(
        Command::new("go")
            .args(["install", &package])
            .env("GOBIN", peers),
    )?;
    fs::rename(peers.join(name), &program).context("failed to rename the built program")?;
    Ok(program)
}

/// The directory of a Go module, downloaded unless it exists.
fn downloaded(module: &str) -> Result<PathBuf> {
    let mut download = Command::new("go");
    // In a directory without a module of its own.
    download.args(["mod", "download", "-json", module]);
    let stdout = process::output(download.current_dir("/"))?;
    let module: Value =
        serde_json::from_str(&stdout).context("failed to parse the output of `go mod download`")?;
    let directory = module["Dir"].as_str().context("go named no directory")?;
    Ok(PathBuf::from(directory))
}

fn yaml_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)
        .with_context(|| format!("failed to list {}", directory.display()))?
        .collect::<Result<Vec<_>, _>>()?;
    let mut paths: Vec<_> = entries.iter().map(fs::DirEntry::path).collect();
    paths.retain(|path| path.extension().is_some_and(|it| it == "yaml"));
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extracts_the_configuration_from_its_object() {
        let objects =
            "kind: ConfigMap\ndata:\n  config.yaml: |\n    a:\n      b: c\n---\nkind: Service\n";
        assert_eq!(configuration(objects).as_deref(), Some("a:\n  b: c\n"));
        assert_eq!(configuration("kind: Service\n"), None);
    }
}
