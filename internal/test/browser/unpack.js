// Unpacks the files of @sparticuz/chromium: node unpack.js FROM TO. It is for the Makefile.
const fs = require('fs'), zlib = require('zlib');
const [from, to] = process.argv.slice(2);
for (const file of fs.readdirSync(from)) {
  fs.writeFileSync(to + '/' + file.replace(/\.br$/, ''), zlib.brotliDecompressSync(fs.readFileSync(from + '/' + file)));
}
// Its own looks for fonts in a folder of AWS Lambda.
fs.writeFileSync(to + '/fonts.xml', '<fontconfig><dir prefix="relative">fonts</dir></fontconfig>\n');
