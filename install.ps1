# Installs atta for one user of Windows, without administrator rights:
#
#     irm https://github.com/atta-llm/atta/releases/latest/download/install.ps1 | iex
#
# It downloads the archive for this processor, compares its SHA-256 with the one beside it, unpacks it to
# %LOCALAPPDATA%\Programs\atta and adds that directory to the user's Path. With options:
#
#     & ([scriptblock]::Create((irm https://github.com/atta-llm/atta/releases/latest/download/install.ps1))) -Uninstall
#
# NEVER RUN so far: written where there was no PowerShell.
[CmdletBinding()]
param(
    # Where the program goes.
    [string] $Directory = (Join-Path $env:LOCALAPPDATA 'Programs\atta'),
    # A version, such as 0.1.0; the newest without it.
    [string] $Version = '',
    # Where the archives are, instead of a release.
    [string] $From = '',
    # Removes the program.
    [switch] $Uninstall
)

Set-StrictMode -Version 2
$ErrorActionPreference = 'Stop'
# The progress of Invoke-WebRequest makes Windows PowerShell 5 ten times as slow.
$ProgressPreference = 'SilentlyContinue'

# `cargo xtask tidy` compares this with Cargo.toml.
$repository = 'https://github.com/atta-llm/atta'

# The directories in the user's Path but the one of this installation.
function Get-OtherPaths {
    $paths = [Environment]::GetEnvironmentVariable('Path', 'User')
    @("$paths" -split ';' | Where-Object { $_ -and $_ -ne $Directory })
}

function Set-UserPath([string[]] $Paths) {
    [Environment]::SetEnvironmentVariable('Path', ($Paths -join ';'), 'User')
}

function Get-Target {
    # A 32-bit PowerShell has the processor in the second variable.
    $processor = $env:PROCESSOR_ARCHITECTURE
    if ($env:PROCESSOR_ARCHITEW6432) { $processor = $env:PROCESSOR_ARCHITEW6432 }
    switch ($processor) {
        'AMD64' { 'x86_64-pc-windows-msvc' }
        'ARM64' { 'aarch64-pc-windows-msvc' }
        default { throw "install.ps1: no archive for the processor $processor; build it: $repository" }
    }
}

function Uninstall-Atta {
    if (-not (Test-Path -LiteralPath (Join-Path $Directory 'atta.exe'))) {
        throw "install.ps1: no atta in $Directory"
    }
    Remove-Item -LiteralPath $Directory -Recurse -Force
    Set-UserPath (Get-OtherPaths)
    Write-Output 'atta was removed. Models and saved prompts stay in ~\.cache\huggingface and ~\.cache\atta.'
}

function Install-Atta {
    $name = "atta-$(Get-Target)"
    if (-not $From) {
        $From = if ($Version) { "$repository/releases/download/v$($Version.TrimStart('v'))" }
        else { "$repository/releases/latest/download" }
    }
    $scratch = Join-Path ([IO.Path]::GetTempPath()) "atta-$([guid]::NewGuid())"
    New-Item -ItemType Directory -Path $scratch | Out-Null
    try {
        $archive = Join-Path $scratch "$name.zip"
        Invoke-WebRequest -UseBasicParsing -Uri "$From/$name.zip" -OutFile $archive
        Invoke-WebRequest -UseBasicParsing -Uri "$From/$name.zip.sha256" -OutFile "$archive.sha256"
        $expected = ((Get-Content -LiteralPath "$archive.sha256" -Raw) -split '\s+')[0]
        $found = (Get-FileHash -LiteralPath $archive -Algorithm SHA256).Hash
        if ($found -ne $expected) { throw "install.ps1: $name.zip has the SHA-256 $found, expected $expected" }
        Expand-Archive -LiteralPath $archive -DestinationPath $scratch
        # A directory that is replaced as a whole must be one of ours.
        if (Test-Path -LiteralPath $Directory) {
            if (-not (Test-Path -LiteralPath (Join-Path $Directory 'atta.exe'))) {
                throw "install.ps1: $Directory exists and holds no atta; choose another -Directory"
            }
            Remove-Item -LiteralPath $Directory -Recurse -Force
        }
        New-Item -ItemType Directory -Path (Split-Path $Directory) -Force | Out-Null
        Move-Item -LiteralPath (Join-Path $scratch $name) -Destination $Directory
    } finally {
        Remove-Item -LiteralPath $scratch -Recurse -Force
    }
    Set-UserPath (@(Get-OtherPaths) + $Directory)
    & (Join-Path $Directory 'atta.exe') --version
    Write-Output 'Open a new terminal and try: atta run -p "Once upon a time"'
}

if ($Version -and $From) { throw 'install.ps1: -Version and -From exclude each other' }
if ($Uninstall) { Uninstall-Atta } else { Install-Atta }
