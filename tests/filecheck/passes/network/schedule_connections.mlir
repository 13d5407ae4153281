// RUN: xdsl-opt %s -p 'pebble-schedule-connections{memory=3 policy=min proposals=0}' | filecheck %s

// Three weights, two biases, two inputs and one output move; with room for two neurons nothing moves twice.
// CHECK-LABEL: @main
func.func @main(%x: tensor<?x2xf32>) -> tensor<?x1xf32> {
  // CHECK-NEXT: %y = pebble.network %x {{.*}} order dense<[0, 1, 2]> : tensor<3xi64> transfers <memory = 3, policy = min, weight_reads = 3, bias_reads = 2, row_reads = 2, row_writes = 1, order = "{{[0-9a-f]+}}"> :
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}
