// Uses the official SDK as its documentation says, and prints what it returned, as one JSON object.
import { createRequire } from 'node:module'

const [home, gitURL, gitPassword] = process.argv.slice(2)
const { Daytona } = createRequire(home + '/')('@daytonaio/sdk')

const got = {}
const failure = async (promise) => {
  try {
    await promise
    return null
  } catch (e) {
    return { name: e.constructor.name, message: e.message, statusCode: e.statusCode ?? null }
  }
}

const daytona = new Daytona() // from the environment
const box = await daytona.create({
  snapshot: 'daytonaio/sandbox:0.8.0',
  language: 'typescript',
  labels: { app: 'arbe', run: 'r1' },
  envVars: { FOO: 'bar' },
  autoStopInterval: 0,
  ephemeral: true,
})
got.box = { id: box.id, name: box.name, state: box.state, labels: box.labels, env: box.env, snapshot: box.snapshot, target: box.target, autoStop: box.autoStopInterval, autoDelete: box.autoDeleteInterval }
got.home = await box.getUserHomeDir()
got.work = await box.getWorkDir()

// Commands.
const p = box.process
await box.fs.createFolder('sub', '755')
got.exec = await p.executeCommand('pwd; echo $FOO $MORE; echo err >&2; exit 7', 'sub', { MORE: 'baz' }, 10)
got.execTimeout = await failure(p.executeCommand('sleep 20', undefined, undefined, 1))
got.execNoDir = await p.executeCommand('true', 'no-such-dir')

// Sessions.
await p.createSession('s1')
got.sessionAgain = await failure(p.createSession('s1'))
got.sync = await p.executeSessionCommand('s1', { command: 'cd sub; export S=1; echo out; echo err >&2; false' })
got.syncLogs = await p.getSessionCommandLogs('s1', got.sync.cmdId)
const async = await p.executeSessionCommand('s1', { command: 'pwd; for i in 1 2 3; do echo "o$i ü"; echo "e$i ü" >&2; sleep 0.05; done; exec 2>&1; read x; echo "got $x $S"', runAsync: true })
got.async = async
let stdout = '', stderr = ''
const streamed = p.getSessionCommandLogs('s1', async.cmdId, (s) => (stdout += s), (s) => (stderr += s))
await p.sendSessionCommandInput('s1', async.cmdId, 'a line')
await streamed
got.streamed = { stdout, stderr }
got.asyncEnd = await p.getSessionCommand('s1', async.cmdId)
got.sessions = (await p.listSessions()).map((s) => ({ id: s.sessionId, commands: s.commands.length }))
await p.deleteSession('s1')
got.sessionGone = await failure(p.getSession('s1'))

// Files.
const big = Buffer.alloc(3 << 20, 'x')
await box.fs.uploadFiles([
  { source: Buffer.from('hello'), destination: 'up/a/hello.txt' },
  { source: big, destination: got.home + '/up/big.bin' },
])
got.hello = (await box.fs.downloadFile('up/a/hello.txt')).toString()
got.big = big.equals(await box.fs.downloadFile('up/big.bin'))
got.missing = await failure(box.fs.downloadFile('up/none'))
await box.fs.setFilePermissions('up/a/hello.txt', { mode: '600' })
got.info = await box.fs.getFileDetails('up/a/hello.txt')
got.infoMissing = await failure(box.fs.getFileDetails('up/none'))
await box.fs.moveFiles('up/a/hello.txt', 'up/moved')
got.files = (await box.fs.listFiles('up')).map((f) => f.name).sort()
got.deleteFolder = await failure(box.fs.deleteFile('up'))
await box.fs.deleteFile('up', true)

// Git.
got.cloneAuth = await failure(box.git.clone(gitURL, 'repo', undefined, undefined, 'git', 'wrong'))
got.cloneBranch = await failure(box.git.clone(gitURL, 'repo', 'no-such-branch', undefined, 'git', gitPassword))
await box.git.clone(gitURL, 'repo', undefined, undefined, 'git', gitPassword)
await box.git.createBranch('repo', 'work')
await box.git.checkoutBranch('repo', 'work')
await box.fs.uploadFile(Buffer.from('new'), 'repo/new.txt')
got.status = await box.git.status('repo')
await box.git.add('repo', ['new.txt'])
got.commit = await box.git.commit('repo', 'add new.txt', 'Ann', 'ann@example.org')
got.commitEmpty = await failure(box.git.commit('repo', 'nothing', 'Ann', 'ann@example.org'))
got.pushAuth = await failure(box.git.push('repo'))
await box.git.push('repo', 'git', gitPassword)
got.branches = await box.git.branches('repo')
got.clean = await box.git.status('repo')

// Boxes.
const other = await daytona.create({ labels: { app: 'arbe', run: 'r2' } })
got.other = { snapshot: other.snapshot, autoStop: other.autoStopInterval, labels: other.labels }
got.noSnapshot = await failure(daytona.create({ snapshot: 'none' }))
const ids = async (labels) => {
  const list = []
  for await (const b of daytona.list({ labels, limit: 1 })) list.push(b.id)
  return list
}
got.listed = { arbe: (await ids({ app: 'arbe' })).length, r2: (await ids({ app: 'arbe', run: 'r2' })).length, none: (await ids({ app: 'none' })).length }
got.labels = await other.setLabels({ only: 'this' })
await other.setAutostopInterval(30)
await other.stop()
got.stopped = (await daytona.get(other.id)).state
got.execStopped = await failure(other.process.executeCommand('true'))
await other.start()
got.started = other.state
await other.delete(60, true)
await box.stop() // which an ephemeral one does not outlive
got.gone = await failure(daytona.get(box.id))
got.execGone = await failure(box.process.executeCommand('true'))

await daytona[Symbol.asyncDispose]?.()
process.stdout.write(JSON.stringify(got, null, 1))
process.exit(0)
