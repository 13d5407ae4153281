// RUN: xdsl-opt %s -p pebble-choose-kernels | filecheck %s
// RUN: xdsl-opt %s -p 'pebble-choose-kernels{lanes=8}' | filecheck %s --check-prefix AVX2
// RUN: xdsl-opt %s -p 'pebble-choose-kernels{examples="4/1/0.25/0/0|permute_lookup@1=100|dense_outputs@1=1|narrow_blocks@1=1"}' | filecheck %s --check-prefix SLOW-LOOKUP
// RUN: xdsl-opt %s -p 'pebble-choose-kernels{examples="4/1/0.25/0/0|count_blocks@8=0.01|narrow_blocks@8=1|sparse_rows@8=1|strips@8=1|dense_outputs@8=1" blocks="count_blocks=2"}' | filecheck %s --check-prefix BLOCKS
// RUN: xdsl-opt %s -p 'pebble-choose-kernels{examples="4/1/0.25/0/0|lookup_rows@6=0.01|lookup_rows@12=0.01|permute_lookup@1=0.01|narrow_blocks@8=9|dense_outputs@6=9|count_blocks@8=9|sparse_rows@8=9|strips@8=9"}' | filecheck %s --check-prefix ROWS
// RUN: xdsl-opt %s -p 'pebble-choose-kernels{lanes=8 examples="4/1/0.25/0/0|lookup_rows@9=0.01|sparse_rows@8=9"}' | filecheck %s --check-prefix ROWS-OF-8

func.func @main(%x: tensor<?x4xf32>) -> (tensor<?x1xf32>, tensor<?x1xf32>) {
  %w = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<[0]> : tensor<1xi64> values dense<[3.0]> : tensor<1xf32> : tensor<4x1xf32, #pebble.sparsity<nonzeros = 1>>
  %v = pebble.constant dense<[[1.0], [0.0], [1.0], [1.0]]> : tensor<4x1xf32>
  // CHECK: %a = pebble.linear %x, %w kernel <{{.*}} from 1, {{.*}} predicted [1: {{.*}}, 8: {{.*}}, 16: {{.*}}, 32: {{.*}}, 64: {{.*}}], "density 0.250, stored sparse; next {{.*}} us at 1{{.*}}">
  // AVX2: %a = pebble.linear
  // AVX2-NOT: permute_lookup
  // ROWS: %a = pebble.linear %x, %w kernel <permute_lookup from 1, {{.*}}lookup_rows from 9, {{.*}} from 16, predicted
  // ROWS-OF-8: %a = pebble.linear
  // ROWS-OF-8-NOT: lookup
  // SLOW-LOOKUP: %a = pebble.linear
  // BLOCKS: %a = pebble.linear %x, %w kernel <{{.*}}, count_blocks from 8, {{.*}}blocks [count_blocks: 2], predicted
  // SLOW-LOOKUP-NOT: <permute_lookup
  // BLOCKS-SAME: corrected by measured 4x1 at 0.25
  %a = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x1xf32, #pebble.sparsity<nonzeros = 1>>) -> tensor<?x1xf32>
  // CHECK: %b = pebble.linear %x, %v kernel <dense_outputs, predicted [{{.*}}], "density 0.750, stored dense">
  %b = pebble.linear %x, %v : (tensor<?x4xf32>, tensor<4x1xf32>) -> tensor<?x1xf32>
  func.return %a, %b : tensor<?x1xf32>, tensor<?x1xf32>
}
